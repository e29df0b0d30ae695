/* File operations, which run in place of a command whose first word begins with '@'. The image needs no tools for them.
 *
 * Each is a process of its own, so that a file that answers slowly holds up nobody. Its exit status is 0 or an errno.
 */
#define _GNU_SOURCE
#include "agent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint8_t chunk[CHUNK];

static char kind_of(mode_t mode) {
    return S_ISREG(mode) ? 'f' : S_ISDIR(mode) ? 'd' : S_ISLNK(mode) ? 'l' : 'o';
}

/* One line, ended by a NUL: a name may hold newlines. */
static int describe(const struct stat *s, const char *name) {
    char line[128];
    int length = snprintf(line, sizeof line, "%c %lld %o %lld %u %u ", kind_of(s->st_mode), (long long)s->st_size,
                          s->st_mode & 07777, (long long)s->st_mtime, s->st_uid, s->st_gid);
    int problem = write_all(1, (const uint8_t *)line, (size_t)length);
    return problem ? problem : write_all(1, (const uint8_t *)name, strlen(name) + 1);
}

/* path */
static int file_stat(char **words) {
    struct stat s;
    return lstat(words[1], &s) ? errno : describe(&s, words[1]);
}

/* path of a folder */
static int file_list(char **words) {
    DIR *folder = opendir(words[1]);
    if (!folder) return errno;
    for (struct dirent *entry; (entry = readdir(folder));) {
        struct stat s;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (fstatat(dirfd(folder), entry->d_name, &s, AT_SYMLINK_NOFOLLOW)) continue; /* gone meanwhile */
        int problem = describe(&s, entry->d_name);
        if (problem) return problem;
    }
    return 0;
}

/* A regular file, or -errno; opening it never waits. */
static int opened(const char *path, int flags, struct stat *s) {
    int file = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
    if (file < 0 || fstat(file, s)) return -errno;
    return S_ISREG(s->st_mode) ? file : S_ISDIR(s->st_mode) ? -EISDIR : -EINVAL;
}

/* path, offset, length */
static int file_read(char **words) {
    struct stat s;
    int file = opened(words[1], O_RDONLY, &s);
    if (file < 0) return -file;
    uint64_t at = strtoull(words[2], NULL, 10), left = strtoull(words[3], NULL, 10);
    while (left) {
        ssize_t n = pread(file, chunk, left < CHUNK ? left : CHUNK, (off_t)at);
        if (n < 0) return errno;
        if (n == 0) break;
        int problem = write_all(1, chunk, (size_t)n);
        if (problem) return problem;
        at += (uint64_t)n, left -= (uint64_t)n;
    }
    return 0;
}

/* Those above a path. */
static int make_folders(const char *path) {
    char *copy = strdup(path);
    if (!copy || !*copy) return ENOENT;
    for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(copy, 0755) && errno != EEXIST) return errno;
        *slash = '/';
    }
    return 0;
}

/* path, offset, "folders" to make those above it or ""; its content comes from standard input */
static int file_write(char **words) {
    struct stat s;
    uint64_t at = strtoull(words[2], NULL, 10);
    int problem = *words[3] ? make_folders(words[1]) : 0;
    if (problem) return problem;
    int file = opened(words[1], O_WRONLY | O_CREAT | (at ? 0 : O_TRUNC), &s);
    if (file < 0) return -file;
    for (ssize_t n; (n = read(0, chunk, CHUNK));) {
        if (n < 0) return errno;
        for (ssize_t done = 0, m; done < n; done += m, at += (uint64_t)m)
            if ((m = pwrite(file, chunk + done, (size_t)(n - done), (off_t)at)) < 0) return errno;
    }
    return close(file) ? errno : 0;
}

/* temporary, path, size, mode in octal or "" */
static int file_commit(char **words) {
    struct stat s, old;
    int file = opened(words[1], O_RDONLY, &s);
    if (file < 0) return -file;
    if ((uint64_t)s.st_size != strtoull(words[3], NULL, 10)) return EMSGSIZE;
    if (!lstat(words[2], &old)) {
        if (S_ISDIR(old.st_mode)) return EISDIR;
        if (!S_ISREG(old.st_mode)) return S_ISLNK(old.st_mode) ? ELOOP : EINVAL;
        if ((fchown(file, old.st_uid, old.st_gid) || fchmod(file, old.st_mode & 07777)))
            return errno;
    }
    if (*words[4] && fchmod(file, (mode_t)strtoul(words[4], NULL, 8))) return errno;
    return rename(words[1], words[2]) ? errno : 0;
}

/* path */
static int file_remove(char **words) { return unlink(words[1]) ? errno : 0; }

static const struct {
    const char *name;
    int words;
    int (*run)(char **);
} COMMANDS[] = {{"@stat", 1, file_stat},   {"@list", 1, file_list},     {"@read", 3, file_read},
                {"@write", 3, file_write}, {"@commit", 4, file_commit}, {"@remove", 1, file_remove},
                {"@netlink", 1, network_netlink}, {"@relay", 2, network_relay}};

int file_command(char **words) {
    int count = 0;
    while (words[count]) count++;
    for (size_t i = 0; i < sizeof COMMANDS / sizeof *COMMANDS; i++)
        if (!strcmp(words[0], COMMANDS[i].name)) return count == COMMANDS[i].words + 1 ? COMMANDS[i].run(words) : EINVAL;
    return ENOSYS;
}
