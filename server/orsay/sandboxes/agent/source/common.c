/* Time, fields of frames, whole writes. */
#include "agent.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void fail(const char *what) {
    dprintf(2, "sandbox agent: %s: %s\n", what, strerror(errno));
    _exit(70);
}

uint64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

uint64_t number(Fields *f, size_t bytes) {
    uint64_t value = 0;
    if ((size_t)(f->end - f->at) < bytes) {
        f->bad = 1;
        return 0;
    }
    memcpy(&value, f->at, bytes); /* little-endian, as the machines that we are built for */
    f->at += bytes;
    return value;
}

/* A copy, with a NUL at its end. */
char *text(Fields *f) {
    size_t length = number(f, 4);
    if (f->bad || (size_t)(f->end - f->at) < length) {
        f->bad = 1;
        return "";
    }
    char *copy = malloc(length + 1);
    if (!copy) fail("memory");
    memcpy(copy, f->at, length);
    copy[length] = 0;
    f->at += length;
    return copy;
}

/* As many as the count before them says, and NULL. */
char **texts(Fields *f) {
    size_t count = number(f, 4);
    if (f->bad || count > (size_t)(f->end - f->at) / 4) {
        f->bad = 1;
        count = 0;
    }
    char **all = calloc(count + 1, sizeof *all);
    if (!all) fail("memory");
    for (size_t i = 0; i < count; i++) all[i] = text(f);
    return all;
}

/* 0 or an errno. */
int write_all(int to, const uint8_t *data, size_t length) {
    while (length) {
        ssize_t n = write(to, data, length);
        if (n < 0 && errno != EINTR) return errno;
        if (n > 0) data += n, length -= (size_t)n;
    }
    return 0;
}
