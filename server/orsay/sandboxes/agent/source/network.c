/* Network operations, which run in place of a command as file operations do (files.c). Their exit status is 0 or an errno. */
#define _GNU_SOURCE
#include "agent.h"

#include <errno.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PAIRS 64 /* connections carried at once; more wait */

/* protocol; messages come from standard input, and are sent as one. The first that fails tells why. */
int network_netlink(char **words) {
    static uint8_t messages[1 << 16], answers[1 << 16] __attribute__((aligned(NLMSG_ALIGNTO)));
    size_t length = 0;
    for (ssize_t n; (n = read(0, messages + length, sizeof messages - length)); length += (size_t)n)
        if (n < 0) return errno;
    if (length == sizeof messages) return EMSGSIZE;
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    int link = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, atoi(words[1]));
    if (link < 0) return errno;
    if (sendto(link, messages, length, 0, (struct sockaddr *)&kernel, sizeof kernel) < 0) return errno;
    for (;;) { /* all answers are there once it is sent */
        ssize_t n = recv(link, answers, sizeof answers, MSG_DONTWAIT);
        if (n < 0) return errno == EAGAIN ? 0 : errno;
        unsigned left = (unsigned)n;
        for (struct nlmsghdr *each = (struct nlmsghdr *)answers; NLMSG_OK(each, left); each = NLMSG_NEXT(each, left)) {
            int problem = each->nlmsg_type == NLMSG_ERROR ? ((struct nlmsgerr *)NLMSG_DATA(each))->error : 0;
            if (problem) return -problem;
        }
    }
}

typedef struct {
    int from, to, ended; /* nothing more comes from it */
    size_t start, end;
    uint8_t data[CHUNK];
} Way;

typedef struct {
    Way ways[2];
} Pair;

/* 1 while it may go on, 0 once it is done, -1 where the pair is broken. */
static int carry(Way *way, short from_events, short to_events) {
    if (way->start == way->end && !way->ended && from_events) {
        ssize_t n = recv(way->from, way->data, CHUNK, MSG_DONTWAIT);
        if (n < 0) return errno == EAGAIN || errno == EINTR ? 1 : -1;
        way->start = 0, way->end = (size_t)n;
        if (n == 0) {
            way->ended = 1;
            shutdown(way->to, SHUT_WR);
        }
    } else if (way->start == way->end || !to_events) return 1;
    while (way->start < way->end) {
        ssize_t n = send(way->to, way->data + way->start, way->end - way->start, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) return errno == EAGAIN || errno == EINTR ? 1 : -1;
        way->start += (size_t)n;
    }
    return 1;
}

static Pair *paired(int client, const struct sockaddr_un *target) {
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    Pair *pair = malloc(sizeof *pair);
    if (!pair || server < 0 || connect(server, (const struct sockaddr *)target, sizeof *target)) {
        free(pair);
        if (server >= 0) close(server);
        close(client);
        return NULL;
    }
    for (int i = 0; i < 2; i++) pair->ways[i].start = pair->ways[i].end = 0, pair->ways[i].ended = 0;
    pair->ways[0].from = pair->ways[1].to = client;
    pair->ways[0].to = pair->ways[1].from = server;
    return pair;
}

/* port of 127.0.0.1, path of a socket; says "ready", then carries connections from one to the other */
int network_relay(char **words) {
    static Pair *pairs[PAIRS];
    static struct pollfd fds[1 + 2 * PAIRS];
    size_t count = 0;
    int on = 1, door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un target = {.sun_family = AF_UNIX};
    here.sin_port = htons((uint16_t)atoi(words[1]));
    if (strlen(words[2]) >= sizeof target.sun_path) return ENAMETOOLONG;
    strcpy(target.sun_path, words[2]);
    if (door < 0 || setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on)) return errno;
    if (bind(door, (struct sockaddr *)&here, sizeof here) || listen(door, 1024)) return errno;
    int problem = write_all(1, (const uint8_t *)"ready\n", 6);
    if (problem) return problem;
    for (;;) {
        fds[0] = (struct pollfd){count < PAIRS ? door : -1, POLLIN, 0};
        for (size_t i = 0; i < count; i++)
            for (int side = 0; side < 2; side++) { /* each side is read by one way and written by the other */
                Way *in = &pairs[i]->ways[side], *out = &pairs[i]->ways[!side];
                short wanted = (short)((in->start == in->end && !in->ended ? POLLIN : 0) | (out->start < out->end ? POLLOUT : 0));
                fds[1 + 2 * i + (size_t)side] = (struct pollfd){wanted ? in->from : -1, wanted, 0};
            }
        if (poll(fds, 1 + 2 * count, -1) < 0 && errno != EINTR) return errno;
        for (size_t i = count; i-- > 0;) {
            const short from = fds[1 + 2 * i].revents, to = fds[2 + 2 * i].revents;
            Way *there = &pairs[i]->ways[0], *back = &pairs[i]->ways[1];
            int broken = carry(there, from, to) < 0 || carry(back, to, from) < 0;
            if (!broken && !(there->ended && back->ended)) continue;
            close(there->from), close(there->to);
            free(pairs[i]);
            pairs[i] = pairs[--count];
        }
        if (!fds[0].revents) continue;
        int client = accept4(door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (client >= 0 && (pairs[count] = paired(client, &target))) count++;
    }
}
