/* Parts of the sandbox agent: see agent.c. */
#ifndef ORSAY_AGENT_H
#define ORSAY_AGENT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { EXITED = 0, TIMED_OUT = 1, KILLED = 2, NOT_STARTED = 3, LOST = 4 }; /* reasons of an end */

#define PIDS 32768 /* processes looked at, at most */
#define CHUNK 65536

/* Fields of a frame that are yet to be read. */
typedef struct {
    const uint8_t *at, *end;
    int bad; /* one of them was cut short */
} Fields;

/* What a supervisor says of its command, once. */
typedef struct {
    int32_t status, reason, length;
    char error[512];
} Report;

/* common.c */
void fail(const char *what);
uint64_t now_us(void);
uint64_t number(Fields *f, size_t bytes);
char *text(Fields *f);
char **texts(Fields *f);
int write_all(int to, const uint8_t *data, size_t length);

/* processes.c */
int below(pid_t top, const pid_t *except, int except_count, pid_t *found, int limit);
void kill_below(const pid_t *except, int except_count);

/* files.c */
int file_command(char **words);

/* network.c */
int network_netlink(char **words);
int network_relay(char **words);

/* supervisor.c */
void supervise(Fields *f, int is_file_command, int in, int out, int errors, int agent);

#endif
