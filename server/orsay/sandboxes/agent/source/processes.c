/* Trees of processes, from /proc. */
#define _GNU_SOURCE
#include "agent.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PID_LIMIT (1 << 22) /* proc_sys_kernel(5) */
#define PASSES 2000         /* of a millisecond: what survives them waits within the kernel */

typedef struct {
    pid_t pid, parent;
    char state;
} Process;

static uint8_t marks[PID_LIMIT / 8];

static int marked(pid_t pid) { return marks[pid / 8] >> pid % 8 & 1; }

static void mark(pid_t pid) { marks[pid / 8] |= (uint8_t)(1 << pid % 8); }

static int processes(Process *all, int limit) {
    int count = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc && count < limit && (entry = readdir(proc));) {
        char path[64], line[512], *name_end;
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
        snprintf(path, sizeof path, "/proc/%.16s/stat", entry->d_name);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) continue;
        ssize_t n = read(file, line, sizeof line - 1);
        close(file);
        if (n <= 0) continue;
        line[n] = 0;
        name_end = strrchr(line, ')'); /* the name before it may hold anything */
        if (name_end && sscanf(name_end + 1, " %c %d", &all[count].state, &all[count].parent) == 2)
            all[count++].pid = atoi(entry->d_name);
    }
    if (proc) closedir(proc);
    return count;
}

/* Descendants of `top` that are no zombies, in no order; their number. */
int below(pid_t top, pid_t *found, int limit) {
    static Process all[PIDS];
    int count = processes(all, PIDS), hits = 0;
    memset(marks, 0, sizeof marks);
    mark(top);
    for (int more = 1; more;) {
        more = 0;
        for (int i = 0; i < count; i++) {
            if (marked(all[i].pid) || !marked(all[i].parent)) continue;
            mark(all[i].pid);
            more = 1;
            if (all[i].state != 'Z' && hits < limit) found[hits++] = all[i].pid;
        }
    }
    return hits;
}

/* Kill all processes below this one. They are stopped first, so that none forks meanwhile. */
void kill_tree(void) {
    static pid_t pids[PIDS];
    pid_t top = getpid();
    for (int pass = 0, n, before = -1; pass < 100 && (n = below(top, pids, PIDS)) != before; pass++, before = n)
        for (int i = 0; i < n; i++) kill(pids[i], SIGSTOP);
    for (int pass = 0, n; pass < PASSES && (n = below(top, pids, PIDS)); pass++) {
        for (int i = 0; i < n; i++) kill(pids[i], SIGKILL);
        usleep(1000);
    }
}
