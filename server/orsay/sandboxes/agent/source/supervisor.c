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
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define GROUPS 64
#define LARGEST_LIST (16 << 20) /* of users or groups */
#define LAST_KILLS_US 3000000  /* then its end is told, whatever is left of its tree */

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

/* A file of the image, which may have put anything in its place. */
static FILE *regular(const char *path) {
    struct stat s;
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return NULL;
    if (!fstat(file, &s) && S_ISREG(s.st_mode) && s.st_size <= LARGEST_LIST) return fdopen(file, "r");
    close(file);
    return NULL;
}

/* All of a text as an id; 0 or an errno. */
static int id_of(const char *digits, unsigned *id) {
    char *end;
    if (*digits < '0' || *digits > '9') return EINVAL;
    errno = 0;
    unsigned long value = strtoul(digits, &end, 10);
    if (*end || errno || value >= UINT32_MAX) return EINVAL;
    *id = (unsigned)value;
    return 0;
}

/* Take on a user's ids and groups; 0 or an errno. Reads the files itself: a static program has no name services. */
static int become(const char *user) {
    gid_t groups[GROUPS];
    int count = 0, found = 0;
    char who[256] = "", name[256] = "";
    unsigned uid = geteuid(), gid = getegid();
    if (!*user) /* the agent's saved ids are others */
        return setresgid(gid, gid, gid) || setresuid(uid, uid, uid) ? errno : 0;
    snprintf(who, sizeof who, "%s", user);
    char *colon = strchr(who, ':');
    if (colon) *colon = 0;
    int numeric = !id_of(who, &uid);
    if (colon && (!numeric || id_of(colon + 1, &gid))) return EINVAL;
    if (numeric && !colon) gid = 0;
    FILE *file = regular("/etc/passwd");
    for (struct passwd *p; file && !found && (p = fgetpwent(file));) {
        if (numeric ? p->pw_uid != uid : strcmp(p->pw_name, who) != 0) continue;
        found = 1;
        uid = p->pw_uid;
        if (!colon) gid = p->pw_gid;
        snprintf(name, sizeof name, "%s", p->pw_name);
    }
    if (file) fclose(file);
    if (!found && !numeric) return ENOENT;
    groups[count++] = gid;
    file = found ? regular("/etc/group") : NULL;
    for (struct group *g; file && (g = fgetgrent(file));)
        for (char **member = g->gr_mem; *member && count < GROUPS; member++)
            if (!strcmp(*member, name)) groups[count++] = g->gr_gid;
    if (file) fclose(file);
    for (int fd = 0; fd < 3; fd++) { /* so that it may open /dev/stdout */
        struct stat s;
        if (!fstat(fd, &s) && S_ISFIFO(s.st_mode)) (void)!fchown(fd, uid, gid);
    }
    if (setgroups((size_t)count, groups) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid)) return errno;
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
static void run_command(const Command *c, int is_file_command, int in, int out, int errors, int problem) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setsid();
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(errors, 2) < 0) return problem_is(problem, "descriptors");
    if ((errno = become(c->user))) return problem_is(problem, c->user);
    if (*c->folder && chdir(c->folder)) return problem_is(problem, c->folder);
    if (is_file_command) {
        close(problem);
        _exit(file_command(c->words));
    }
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

static int left_ms(uint64_t until_us) {
    uint64_t now = now_us(), left = now < until_us ? (until_us - now + 999) / 1000 : 0;
    return left < 1 << 30 ? (int)left : 1 << 30;
}

/* Reports the end of the command; `status` is that of its process. */
static void answer_end(int agent, int status, int reason, const char *why) {
    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (*why) reason = NOT_STARTED;
    answer(agent, reason == TIMED_OUT ? 124 : code, reason, why);
}

/* `agent` gets one Report; a byte from it is a signal for the command's process group, or 0 for the end of all. */
void supervise(Fields *f, int is_file_command, int in, int out, int errors, int agent) {
    Command c;
    int problem[2], reason = EXITED, status = 0, ended = 0, answered = 0;
    uint64_t killing_since_us = 0;
    char why[512] = "";
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!command_of(f, &c)) return answer(agent, 127, NOT_STARTED, "malformed command");
    uint64_t deadline_us = c.deadline_ms ? now_us() + c.deadline_ms * 1000 : UINT64_MAX;
    int signals = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    pid_t child = -1;
    if (signals < 0 || pipe2(problem, O_CLOEXEC | O_NONBLOCK) || (child = fork()) < 0)
        return answer(agent, 127, NOT_STARTED, strerror(errno));
    if (!child) {
        close(problem[0]), close(agent), close(signals);
        run_command(&c, is_file_command, in, out, errors, problem[1]);
        _exit(errno == ENOENT ? 127 : 126); /* as a shell says it */
    }
    close(problem[1]), close(in), close(out);
    if (errors != out) close(errors);
    for (;;) {
        pid_t pid;
        int its_status;
        while ((pid = waitpid(-1, &its_status, WNOHANG)) > 0)
            if (pid == child) {
                ended = 1;
                status = its_status;
                ssize_t length = read(problem[0], why, sizeof why - 1); /* nothing where it ran */
                why[length > 0 ? length : 0] = 0;
                close(problem[0]);
            }
        int alone = pid < 0; /* no process is left */
        uint64_t now = now_us();
        if (ended && !answered && (alone || !killing_since_us || now - killing_since_us > LAST_KILLS_US)) {
            answer_end(agent, status, reason, why);
            answered = 1;
        }
        if (alone) return;
        if (!ended && !killing_since_us && now >= deadline_us) {
            reason = TIMED_OUT;
            killing_since_us = now;
        }
        if (killing_since_us) kill_below(NULL, 0);
        struct pollfd fds[] = {{signals, POLLIN, 0}, {agent, POLLIN, 0}};
        poll(fds, 2, killing_since_us ? (answered ? 100 : 1) : ended || deadline_us == UINT64_MAX ? -1 : left_ms(deadline_us));
        if (fds[0].revents) {
            struct signalfd_siginfo infos[16];
            (void)!read(signals, infos, sizeof infos);
        }
        uint8_t order;
        if (!fds[1].revents || recv(agent, &order, 1, MSG_DONTWAIT) != 1) continue;
        if (order) kill(-child, order);
        else {
            if (!ended) reason = KILLED;
            killing_since_us = now_us();
        }
    }
}
