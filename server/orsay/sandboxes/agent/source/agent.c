/* Sandbox agent: process 1 of a sandbox. Runs commands for the server, which it hears over one stream.
 *
 * The stream is standard input and output: frames of `u32 length, u8 kind, u32 job, payload`, little-endian. Each job has a
 * supervisor process of its own. The sandbox ends with the stream, or when it is silent for the length of a lease.
 *
 * Commands cannot reach the stream: agent and supervisors are not dumpable, which closes /proc/1/fd and ptrace(2) to
 * whoever lacks CAP_SYS_PTRACE, and process 1 takes no signals from within its namespace (pid_namespaces(7)).
 */
#define _GNU_SOURCE
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { START = 1, INPUT = 2, KILL = 3, ALIVE = 4, HALT = 5 };             /* from the server */
enum { OUTPUT = 1, ERRORS = 2, TAKEN = 3, END = 4, HELLO = 5, BEAT = 6 }; /* to the server; BEAT answers ALIVE */
/* flags of START: standard input is fed; errors have a stream of their own; a file operation; HALT leaves it alone */
enum { WITH_INPUT = 1, APART = 2, FILES = 4, SERVICE = 8 };

#define VERSION 2
#define HEADER 9
#define QUEUE_LIMIT (4 << 20) /* bytes queued to the server at which reading from commands pauses */
#define FRAME_LIMIT (32 << 20)
#define KEPT_BUFFER (1 << 20)
#define GRACE_US 5000000 /* for a supervisor to end its job; then it has been stopped, and is killed */

typedef struct {
    uint8_t *data;
    size_t start, end, size;
} Buffer;

static size_t held(const Buffer *b) { return b->end - b->start; }

static uint8_t *room(Buffer *b, size_t more) {
    if (b->start && b->end + more > b->size) {
        memmove(b->data, b->data + b->start, held(b));
        b->end -= b->start;
        b->start = 0;
    }
    if (b->end + more > b->size) {
        size_t size = b->size ? b->size : 4096;
        while (size < b->end + more) size *= 2;
        if (!(b->data = realloc(b->data, size))) fail("memory");
        b->size = size;
    }
    return b->data + b->end;
}

static void add(Buffer *b, const void *data, size_t length) {
    memcpy(room(b, length), data, length);
    b->end += length;
}

static void take(Buffer *b, size_t length) {
    b->start += length;
    if (b->start == b->end) {
        b->start = b->end = 0;
        if (b->size > KEPT_BUFFER) { /* one large frame must not keep its memory */
            free(b->data);
            *b = (Buffer){0};
        }
    }
}

typedef struct {
    uint32_t id;
    pid_t supervisor;
    int in, out, errors, orders; /* -1: closed */
    int input_ended, ended, service;
    uint64_t left, total, begun, end_by; /* end_by: UINT64_MAX while it may go on */
    int end_reason;
    Buffer input;
} Job;

static Job *jobs;
static size_t job_count, job_room;
static Buffer to_server, from_server;
static int null; /* opened while /dev/null is still the image's */

static void frame(uint8_t kind, uint32_t job, const void *a, size_t a_length, const void *b, size_t b_length) {
    uint32_t length = (uint32_t)(a_length + b_length);
    uint8_t header[HEADER];
    memcpy(header, &length, 4);
    header[4] = kind;
    memcpy(header + 5, &job, 4);
    add(&to_server, header, HEADER);
    if (a_length) add(&to_server, a, a_length);
    if (b_length) add(&to_server, b, b_length);
}

static void shut(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void end_job(Job *job, int32_t status, uint8_t reason, const char *error, size_t length) {
    if (job->ended) return;
    struct __attribute__((packed)) {
        int32_t status;
        uint8_t reason;
        uint64_t total, took_us;
    } end = {status, reason, job->total, now_us() - job->begun};
    frame(END, job->id, &end, sizeof end, error, length);
    job->ended = 1;
    shut(&job->in);
}

static int read_output(Job *job, int *fd, uint8_t kind, size_t limit) { /* bytes read; closes it at its end */
    static uint8_t chunk[CHUNK];
    ssize_t n = read(*fd, chunk, limit < CHUNK ? limit : CHUNK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (n <= 0) return shut(fd), 0;
    if (job->ended) return (int)n; /* written by what it left in the background: read, so that it goes on */
    uint64_t kept = (uint64_t)n < job->left ? (uint64_t)n : job->left;
    job->left -= kept;
    job->total += (uint64_t)n;
    if (kept) frame(kind, job->id, chunk, kept, NULL, 0);
    return (int)n;
}

static void drain(Job *job, int *fd, uint8_t kind) { /* what lies in the pipe now, and no more */
    int lies = 0;
    if (*fd < 0 || ioctl(*fd, FIONREAD, &lies)) return;
    while (lies > 0 && *fd >= 0) {
        int n = read_output(job, fd, kind, (size_t)lies);
        if (!n) break;
        lies -= n;
    }
}

/* Kill what supervisors left that have been killed: all below us but the trees of those that live. */
static void kill_strays(void) {
    static pid_t pids[PIDS], living[PIDS];
    for (int pass = 0, n = 1; n && pass < 100; pass++) {
        int count = 0;
        for (size_t i = 0; i < job_count && count < PIDS; i++)
            if (jobs[i].supervisor) living[count++] = jobs[i].supervisor;
        n = below(getpid(), living, count, pids, PIDS);
        for (int i = 0; i < n; i++) kill(pids[i], SIGKILL);
    }
}

static void end_by_force(Job *job) {
    kill(job->supervisor, SIGKILL);
    waitpid(job->supervisor, NULL, 0);
    job->supervisor = 0;
    end_job(job, job->end_reason == TIMED_OUT ? 124 : 128 + SIGKILL, (uint8_t)job->end_reason, "", 0);
    shut(&job->orders), shut(&job->out), shut(&job->errors);
    kill_strays();
}

static void read_report(Job *job) {
    Report report;
    ssize_t n = recv(job->orders, &report, sizeof report, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    drain(job, &job->out, OUTPUT);
    drain(job, &job->errors, ERRORS);
    if (n == sizeof report) {
        end_job(job, report.status, (uint8_t)report.reason, report.error, (size_t)report.length);
        return;
    }
    if (!job->ended) end_job(job, 128 + SIGKILL, LOST, "", 0);
    shut(&job->orders), shut(&job->out), shut(&job->errors); /* who still holds them is none of its processes */
}

/* Supervisors end by themselves; one that was killed leaves strays. */
static void reap(void) {
    int status, strays = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        for (size_t i = 0; i < job_count; i++)
            if (jobs[i].supervisor == pid) {
                jobs[i].supervisor = 0;
                strays |= WIFSIGNALED(status);
            }
    if (strays) kill_strays();
}

/* Kill all that runs but services, whatever it does to others; each of the jobs ends as LOST. */
static void halt(void) {
    static pid_t services[PIDS], left[1];
    for (int pass = 0; pass < 100; pass++) {
        int count = 0;
        for (size_t i = 0; i < job_count && count < PIDS; i++)
            if (jobs[i].supervisor && jobs[i].service) services[count++] = jobs[i].supervisor;
        kill_below(services, count);
        reap();
        if (!below(getpid(), services, count, left, 1)) return;
        usleep(1000); /* they take a moment to end */
    }
}

static void start(uint32_t id, const uint8_t *data, size_t length) {
    Fields f = {data, data + length, 0};
    Job job = {.id = id, .in = -1, .out = -1, .errors = -1, .orders = -1, .begun = now_us()};
    int in[2] = {-1, -1}, out[2] = {-1, -1}, errors[2] = {-1, -1}, orders[2] = {-1, -1};
    uint32_t flags = (uint32_t)number(&f, 4);
    job.left = number(&f, 8);
    job.service = (flags & SERVICE) != 0;
    Fields ahead = f;
    uint64_t limit_ms = number(&ahead, 8);
    job.end_by = limit_ms ? job.begun + limit_ms * 1000 + GRACE_US : UINT64_MAX;
    job.end_reason = TIMED_OUT;
    if ((flags & WITH_INPUT ? pipe2(in, O_CLOEXEC) : (in[0] = fcntl(null, F_DUPFD_CLOEXEC, 0)) < 0) ||
        pipe2(out, O_CLOEXEC) || (flags & APART && pipe2(errors, O_CLOEXEC)) ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, orders) || (job.supervisor = fork()) < 0) {
        const char *why = strerror(errno);
        end_job(&job, 127, NOT_STARTED, why, strlen(why));
        for (int i = 0; i < 2; i++) shut(&in[i]), shut(&out[i]), shut(&errors[i]), shut(&orders[i]);
        return;
    }
    if (!job.supervisor) {
        dup2(null, 0), dup2(null, 1); /* in place of the stream to the server */
        for (size_t i = 0; i < job_count; i++)
            shut(&jobs[i].in), shut(&jobs[i].out), shut(&jobs[i].errors), shut(&jobs[i].orders);
        shut(&in[1]), shut(&out[0]), shut(&errors[0]), shut(&orders[0]);
        supervise(&f, (flags & FILES) != 0, in[0], out[1], errors[1] < 0 ? out[1] : errors[1], orders[1]);
        _exit(0);
    }
    shut(&in[0]), shut(&out[1]), shut(&errors[1]), shut(&orders[1]);
    job.in = in[1], job.out = out[0], job.errors = errors[0], job.orders = orders[0];
    if (job.in >= 0) fcntl(job.in, F_SETFL, O_NONBLOCK);
    fcntl(job.out, F_SETFL, O_NONBLOCK);
    if (job.errors >= 0) fcntl(job.errors, F_SETFL, O_NONBLOCK);
    if (job_count == job_room) {
        job_room = job_room ? 2 * job_room : 16;
        if (!(jobs = realloc(jobs, job_room * sizeof *jobs))) fail("memory");
    }
    jobs[job_count++] = job;
}

static Job *job_of(uint32_t id) {
    for (size_t i = 0; i < job_count; i++)
        if (jobs[i].id == id && !jobs[i].ended) return &jobs[i];
    return NULL;
}

static void feed(Job *job) {
    while (job->in >= 0 && held(&job->input)) {
        ssize_t n = write(job->in, job->input.data + job->input.start, held(&job->input));
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        uint32_t taken = n < 0 ? (uint32_t)held(&job->input) : (uint32_t)n; /* it reads no more: dropped */
        if (n < 0) shut(&job->in);
        take(&job->input, taken);
        frame(TAKEN, job->id, &taken, sizeof taken, NULL, 0);
    }
    if (job->input_ended) shut(&job->in);
}

static void receive(uint8_t kind, uint32_t id, const uint8_t *data, size_t length) {
    Job *job = kind == START ? NULL : job_of(id);
    if (kind == START) start(id, data, length);
    else if (kind == INPUT && job && length && job->in >= 0) add(&job->input, data, length), feed(job);
    else if (kind == INPUT && job) {
        uint32_t taken = (uint32_t)length;
        if (length) frame(TAKEN, id, &taken, sizeof taken, NULL, 0);
        else job->input_ended = 1, feed(job);
    } else if (kind == KILL && job && length == 1) {
        (void)!send(job->orders, data, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (!data[0] && job->end_by > now_us() + GRACE_US) job->end_by = now_us() + GRACE_US, job->end_reason = KILLED;
    } else if (kind == HALT) halt();
    else if (kind == ALIVE) frame(BEAT, 0, NULL, 0, NULL, 0);
}

static void receive_all(void) {
    static uint8_t chunk[CHUNK];
    ssize_t n = read(0, chunk, CHUNK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) _exit(0); /* the server is gone */
    add(&from_server, chunk, (size_t)n);
    for (uint32_t length, id; held(&from_server) >= HEADER;) {
        const uint8_t *head = from_server.data + from_server.start;
        memcpy(&length, head, 4);
        memcpy(&id, head + 5, 4);
        if (length > FRAME_LIMIT) errno = EMSGSIZE, fail("frame");
        if (held(&from_server) < HEADER + length) return;
        receive(head[4], id, head + HEADER, length);
        take(&from_server, HEADER + length);
    }
}

int main(int argc, char **argv) {
    uint64_t lease_us = argc > 1 ? strtoull(argv[1], NULL, 10) * 1000000 : 0, heard = now_us();
    uint8_t version = VERSION;
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, NULL);
    signal(SIGPIPE, SIG_IGN);
    /* Saved ids that commands have not: otherwise prlimit(2) would take them for our own. Of no use where there is one id. */
    (void)!setresgid(getgid(), getegid(), 1);
    (void)!setresuid(getuid(), geteuid(), 1);
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if ((null = open("/dev/null", O_RDWR | O_CLOEXEC)) < 0) fail("/dev/null");
    int signals = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0) fail("signals");
    fcntl(0, F_SETFL, fcntl(0, F_GETFL) | O_NONBLOCK);
    fcntl(1, F_SETFL, fcntl(1, F_GETFL) | O_NONBLOCK);
    frame(HELLO, 0, &version, 1, NULL, 0);
    for (;;) {
        static struct pollfd *fds;
        static size_t fd_room;
        if (fd_room < 3 + 4 * job_count) {
            fd_room = 2 * (3 + 4 * job_count);
            if (!(fds = realloc(fds, fd_room * sizeof *fds))) fail("memory");
        }
        int full = held(&to_server) > QUEUE_LIMIT;
        size_t n = 3, polled = job_count;
        fds[0] = (struct pollfd){0, POLLIN, 0};
        fds[1] = (struct pollfd){held(&to_server) ? 1 : -1, POLLOUT, 0};
        fds[2] = (struct pollfd){signals, POLLIN, 0};
        for (size_t i = 0; i < job_count; i++, n += 4) {
            fds[n] = (struct pollfd){held(&jobs[i].input) ? jobs[i].in : -1, POLLOUT, 0};
            fds[n + 1] = (struct pollfd){full ? -1 : jobs[i].out, POLLIN, 0};
            fds[n + 2] = (struct pollfd){full ? -1 : jobs[i].errors, POLLIN, 0};
            fds[n + 3] = (struct pollfd){jobs[i].orders, POLLIN, 0};
        }
        if (poll(fds, n, 1000) < 0 && errno != EINTR) fail("poll");
        if (!fds[0].revents && lease_us && now_us() - heard >= lease_us) _exit(75);
        if (fds[1].revents) {
            ssize_t sent = write(1, to_server.data + to_server.start, held(&to_server));
            if (sent < 0 && errno != EAGAIN && errno != EINTR) _exit(0);
            if (sent > 0) take(&to_server, (size_t)sent);
        }
        for (size_t i = 0; i < polled; i++) {
            Job *job = &jobs[i];
            if (fds[3 + 4 * i].revents) feed(job);
            if (fds[4 + 4 * i].revents && job->out >= 0) read_output(job, &job->out, OUTPUT, CHUNK);
            if (fds[5 + 4 * i].revents && job->errors >= 0) read_output(job, &job->errors, ERRORS, CHUNK);
            if (fds[6 + 4 * i].revents && job->orders >= 0) read_report(job);
        }
        if (fds[2].revents) {
            struct signalfd_siginfo infos[16];
            (void)!read(signals, infos, sizeof infos);
            reap();
        }
        for (size_t i = 0; i < polled; i++)
            if (!jobs[i].ended && jobs[i].supervisor && now_us() >= jobs[i].end_by) end_by_force(&jobs[i]);
        if (fds[0].revents) {
            heard = now_us();
            receive_all(); /* last: it may move `jobs` */
        }
        for (size_t i = job_count; i-- > 0;)
            if (jobs[i].ended && !jobs[i].supervisor && jobs[i].orders < 0) {
                shut(&jobs[i].out), shut(&jobs[i].errors);
                free(jobs[i].input.data);
                jobs[i] = jobs[--job_count];
            }
    }
}
