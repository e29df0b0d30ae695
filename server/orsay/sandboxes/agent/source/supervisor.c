/* Supervisor of one command: its start, its deadline, its end.
 *
 * It is a child subreaper (prctl(2)), so all that the command forks stays below it, daemons included, and a deadline reaches
 * the whole tree. After the command has ended it remains for what that left in the background.
 */
#define _GNU_SOURCE
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define GROUPS 64

typedef struct {
    uint64_t deadline_ms; /* 0: none */
    char *user;           /* "", a name, "uid" or "uid:gid" */
    char *folder;         /* "": as it is */
    char **words;
    char **variables;      /* besides those of the agent */
    const uint8_t *script; /* what is too long for an argument (128 KiB on Linux): on descriptor 3 */
    size_t script_length;
} Command;

static int command_of(Fields *f, Command *c) {
    c->deadline_ms = number(f, 8);
    c->user = text(f);
    c->folder = text(f);
    c->words = texts(f);
    c->variables = texts(f);
    c->script_length = number(f, 4);
    c->script = f->at;
    return !f->bad && (size_t)(f->end - f->at) == c->script_length && c->words[0];
}

/* Take on a user's ids and groups; 0 or an errno. Reads the files itself: a static program has no name services. */
static int become(const char *user) {
    gid_t groups[GROUPS];
    int count = 0, found = 0;
    char *end, name[256] = "";
    unsigned long uid = strtoul(user, &end, 10), gid = 0;
    int numeric = end != user && (*end == 0 || *end == ':'), grouped = numeric && *end == ':';
    if (!*user) return 0;
    if (grouped) gid = strtoul(end + 1, NULL, 10);
    FILE *file = fopen("/etc/passwd", "re");
    for (struct passwd *p; file && !found && (p = fgetpwent(file));) {
        if (numeric ? p->pw_uid != uid : strcmp(p->pw_name, user) != 0) continue;
        found = 1;
        uid = p->pw_uid;
        if (!grouped) gid = p->pw_gid;
        snprintf(name, sizeof name, "%s", p->pw_name);
    }
    if (file) fclose(file);
    if (!found && !numeric) return ENOENT;
    groups[count++] = (gid_t)gid;
    file = found ? fopen("/etc/group", "re") : NULL;
    for (struct group *g; file && (g = fgetgrent(file));)
        for (char **member = g->gr_mem; *member && count < GROUPS; member++)
            if (!strcmp(*member, name)) groups[count++] = g->gr_gid;
    if (file) fclose(file);
    if (setgroups((size_t)count, groups) || setresgid((gid_t)gid, (gid_t)gid, (gid_t)gid) ||
        setresuid((uid_t)uid, (uid_t)uid, (uid_t)uid))
        return errno;
    return 0;
}

static int with_script(const Command *c) {
    int script = memfd_create("command", MFD_CLOEXEC);
    if (script < 0 || (errno = write_all(script, c->script, c->script_length)) || lseek(script, 0, SEEK_SET)) return errno;
    if (script == 3) return fcntl(3, F_SETFD, 0) ? errno : 0;
    return dup2(script, 3) < 0 ? errno : 0;
}

static void problem_is(int to, const char *with) { dprintf(to, "%s: %s", with, strerror(errno)); }

/* In the command's own process; returns where it cannot be started, and has said why. */
static void run_command(const Command *c, int in, int out, int errors, int problem) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setsid();
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(errors, 2) < 0) return problem_is(problem, "descriptors");
    if ((errno = become(c->user))) return problem_is(problem, c->user);
    if (*c->folder && chdir(c->folder)) return problem_is(problem, c->folder);
    if (c->words[0][0] == '@') _exit(file_command(c->words));
    if (c->script_length && (errno = with_script(c))) return problem_is(problem, "command");
    for (char **variable = c->variables; *variable; variable++)
        if (strchr(*variable, '=')) putenv(*variable);
    if (!getenv("PATH")) setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
    execvp(c->words[0], c->words);
    problem_is(problem, c->words[0]);
}

static void answer(int to, int status, int reason, const char *error) {
    Report report = {status, reason, (int32_t)strnlen(error, sizeof report.error), ""};
    memcpy(report.error, error, (size_t)report.length);
    (void)!send(to, &report, sizeof report, MSG_NOSIGNAL);
}

static int left_ms(uint64_t deadline_us) {
    uint64_t now = now_us(), left = now < deadline_us ? (deadline_us - now + 999) / 1000 : 0;
    return left < 1 << 30 ? (int)left : 1 << 30;
}

/* `agent` gets one Report; a byte from it is a signal for the command's process group, or 0 for the end of all. */
void supervise(Fields *f, int in, int out, int errors, int agent) {
    Command c;
    int problem[2], reason = EXITED, answered = 0;
    char why[512];
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!command_of(f, &c)) return answer(agent, 127, NOT_STARTED, "malformed command");
    uint64_t deadline_us = now_us() + c.deadline_ms * 1000;
    int signals = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    pid_t child = -1;
    if (signals < 0 || pipe2(problem, O_CLOEXEC) || (child = fork()) < 0)
        return answer(agent, 127, NOT_STARTED, strerror(errno));
    if (!child) {
        close(problem[0]);
        run_command(&c, in, out, errors, problem[1]);
        _exit(errno == ENOENT ? 127 : 126); /* as a shell says it */
    }
    close(problem[1]), close(in), close(out);
    if (errors != out) close(errors);
    ssize_t length = read(problem[0], why, sizeof why - 1); /* 0 once the command runs */
    why[length > 0 ? length : 0] = 0;
    close(problem[0]);
    for (;;) {
        pid_t ended;
        int status;
        while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
            if (ended != child) continue;
            int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
            if (*why) reason = NOT_STARTED;
            answer(agent, reason == TIMED_OUT ? 124 : code, reason, why);
            answered = 1;
        }
        if (ended < 0) return; /* no process is left */
        struct pollfd fds[] = {{signals, POLLIN, 0}, {agent, POLLIN, 0}};
        int limited = c.deadline_ms && !answered && reason == EXITED;
        if (poll(fds, 2, limited ? left_ms(deadline_us) : -1) == 0) {
            reason = TIMED_OUT;
            kill_tree();
        }
        if (fds[0].revents) {
            struct signalfd_siginfo info;
            while (read(signals, &info, sizeof info) > 0) continue;
        }
        uint8_t order;
        if (!fds[1].revents || recv(agent, &order, 1, MSG_DONTWAIT) != 1) continue;
        if (order) kill(-child, order);
        else {
            if (!answered) reason = KILLED;
            kill_tree();
        }
    }
}
