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

typedef struct {
    pid_t pid, parent;
} Process;

typedef uint8_t Pids[PID_LIMIT / 8];

static int holds(const Pids pids, pid_t pid) { return pids[pid / 8] >> pid % 8 & 1; }

static void put(Pids pids, pid_t pid) { pids[pid / 8] |= (uint8_t)(1 << pid % 8); }

/* Those that run. A zombie with more than one thread does: only its first thread has ended. */
static int processes(Process *all, int limit) {
    int count = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc && count < limit && (entry = readdir(proc));) {
        char path[64], line[512], *name_end, state;
        int parent, threads;
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
        snprintf(path, sizeof path, "/proc/%.16s/stat", entry->d_name);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) continue;
        ssize_t n = read(file, line, sizeof line - 1);
        close(file);
        if (n <= 0) continue;
        line[n] = 0;
        name_end = strrchr(line, ')'); /* the name before it may hold anything */
        if (!name_end || sscanf(name_end + 1,
                                " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d", &state,
                                &parent, &threads) != 3)
            continue;
        if (state == 'Z' && threads <= 1) continue;
        all[count].pid = atoi(entry->d_name);
        all[count++].parent = parent;
    }
    if (proc) closedir(proc);
    return count;
}

/* Descendants of `top` that run, without the trees of `except`, in no order; their number. */
int below(pid_t top, const pid_t *except, int except_count, pid_t *found, int limit) {
    static Process all[PIDS];
    static Pids tree, left_out;
    int count = processes(all, PIDS), hits = 0;
    memset(tree, 0, sizeof tree);
    memset(left_out, 0, sizeof left_out);
    for (int i = 0; i < except_count; i++) put(left_out, except[i]);
    put(tree, top);
    for (int more = 1; more;) {
        more = 0;
        for (int i = 0; i < count; i++) {
            pid_t pid = all[i].pid;
            if (holds(tree, pid) || holds(left_out, pid) || !holds(tree, all[i].parent)) continue;
            put(tree, pid);
            more = 1;
            if (hits < limit) found[hits++] = pid;
        }
    }
    return hits;
}

/* Kill what is below this process now, without the trees of `except`. All are stopped first, so that fewer fork meanwhile. */
void kill_below(const pid_t *except, int except_count) {
    static pid_t pids[PIDS];
    pid_t top = getpid();
    for (int pass = 0, n, before = -1; pass < 20 && (n = below(top, except, except_count, pids, PIDS)) != before; pass++, before = n)
        for (int i = 0; i < n; i++) kill(pids[i], SIGSTOP);
    for (int n = below(top, except, except_count, pids, PIDS); n-- > 0;) kill(pids[n], SIGKILL);
}
