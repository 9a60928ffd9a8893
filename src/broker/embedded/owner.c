/*
 * One process owns the directory: an open-file-description lock on <dir>/broker.owner, which also
 * says who it is. The lock goes with the process, however it ends; the text is only for people.
 *
 * Must not know: the database.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "broker/embedded/internal.h"

#define OWNER_FILE "broker.owner"
#define PATH_BYTES_MAX 4096
#define TEXT_BYTES_MAX 512
#define PARSE_BYTES_MAX 65536
#define COMMAND_BYTES_MAX 96

struct owner {
    int64_t pid;
    char command[COMMAND_BYTES_MAX];
    td_time_us since;
};

static bool path_of(const char *dir, char path[PATH_BYTES_MAX])
{
    int n = snprintf(path, PATH_BYTES_MAX, "%s/" OWNER_FILE, dir);
    return n > 0 && n < PATH_BYTES_MAX;
}

/* "tidings run": the program and its first argument; more could be a secret. */
static void own_command(char out[COMMAND_BYTES_MAX])
{
    char raw[1024];
    size_t len = 0;
    FILE *f = fopen("/proc/self/cmdline", "re");
    if (f != NULL) {
        len = fread(raw, 1, sizeof(raw) - 1, f);
        (void)fclose(f);
    }
    raw[len] = '\0';
    size_t first = strlen(raw);
    const char *slash = strrchr(raw, '/');
    const char *program = slash != NULL ? slash + 1 : raw;
    const char *argument = first + 1 < len ? raw + first + 1 : "";
    if (argument[0] == '-') {
        argument = "";
    }
    (void)snprintf(out, COMMAND_BYTES_MAX, "%.40s%s%.40s", program, argument[0] != '\0' ? " " : "",
                   argument);
}

static void write_text(int fd, const struct td_clock *clock)
{
    char command[COMMAND_BYTES_MAX];
    char since[TDI_TIME_BYTES];
    own_command(command);
    struct tdi_buf b;
    tdi_buf_init(&b, TEXT_BYTES_MAX);
    bool first = true;
    tdi_buf_add_char(&b, '{');
    tdi_json_add_member_int(&b, &first, "pid", (int64_t)getpid());
    tdi_json_add_member(&b, &first, "command", tdi_str(command));
    tdi_json_add_member(&b, &first, "since", tdi_str(tdi_time_format(tdi_wall(clock), since)));
    tdi_buf_add_cstr(&b, "}\n");
    /* Only a help for people: the lock counts, so a full disk here is no reason not to start. */
    if (ftruncate(fd, 0) != 0 || (!b.failed && pwrite(fd, b.data, b.len, 0) < 0)) {
        errno = 0;
    }
    tdi_buf_release(&b);
}

static void parse_text(struct td_str text, struct owner *ret)
{
    struct tdi_arena a;
    tdi_arena_init(&a, PARSE_BYTES_MAX);
    struct tdi_json_token t;
    struct td_str s;
    if (tdi_json_pointer(text, TD_STR_LIT("/pid"), &a, &t, NULL) == TD_OK &&
        t.kind == TDI_JSON_NUMBER) {
        (void)tdi_json_int(t.raw, &ret->pid);
    }
    if (tdi_json_pointer(text, TD_STR_LIT("/command"), &a, &t, NULL) == TD_OK &&
        tdi_json_text(&t, &a, &s)) {
        (void)snprintf(ret->command, sizeof(ret->command), "%.*s", (int)s.len, s.data);
    }
    if (tdi_json_pointer(text, TD_STR_LIT("/since"), &a, &t, NULL) == TD_OK &&
        tdi_json_text(&t, &a, &s)) {
        (void)tdi_time_parse(s, &ret->since);
    }
    tdi_arena_release(&a);
}

static void read_text(int fd, struct owner *ret)
{
    char text[TEXT_BYTES_MAX];
    *ret = (struct owner){.since = TD_TIME_NONE};
    ssize_t n = pread(fd, text, sizeof(text), 0);
    if (n > 0) {
        parse_text((struct td_str){.data = text, .len = (size_t)n}, ret);
    }
}

static enum td_err owned(const char *dir, int fd, td_time_us now, struct td_error *err)
{
    struct owner who;
    read_text(fd, &who);
    char since[32] = "";
    if (who.since != TD_TIME_NONE) {
        time_t seconds = (time_t)(who.since / TD_SECOND_US);
        struct tm local;
        bool today = now - who.since < 86400 * TD_SECOND_US;
        if (localtime_r(&seconds, &local) != NULL) {
            (void)strftime(since, sizeof(since), today ? ", since %H:%M" : ", since %Y-%m-%d %H:%M",
                           &local);
        }
    }
    if (who.pid == 0) {
        return td_error_set(err, TD_ERR_OWNED,
                            "%s is in use by another process. Stop it, or use another directory.",
                            dir);
    }
    return td_error_set(err, TD_ERR_OWNED,
                        "%s is in use by process %" PRId64 " (%s%s). Stop it, or use another "
                        "directory.",
                        dir, who.pid, who.command, since);
}

enum td_err tdd_emb_owner_take(const char *dir, const struct td_clock *clock, int *ret_fd,
                               struct td_error *err)
{
    char path[PATH_BYTES_MAX];
    if (!path_of(dir, path)) {
        return td_error_set(err, TD_ERR_CONFIG, "the path of the broker's directory is too long");
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        enum td_err code = errno == EACCES || errno == EPERM ? TD_ERR_DENIED
                           : errno == EROFS                  ? TD_ERR_READ_ONLY
                           : errno == ENOSPC                 ? TD_ERR_DISK_FULL
                                                             : TD_ERR_CANNOT_CREATE;
        return td_error_set(err, code, "%s cannot be opened: %s", path, strerrordesc_np(errno));
    }
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_SETLK, &lock) != 0) {
        enum td_err rc = TD_ERR_IO;
        if (errno == EAGAIN || errno == EACCES) {
            rc = owned(dir, fd, tdi_wall(clock), err);
        } else {
            rc = td_error_set(err, TD_ERR_IO, "%s cannot be locked: %s", path,
                              strerrordesc_np(errno));
        }
        (void)close(fd);
        return rc;
    }
    write_text(fd, clock);
    *ret_fd = fd;
    return TD_OK;
}

void tdd_emb_owner_release(int fd)
{
    if (fd >= 0) {
        /* A failure leaves an old text, which nobody believes without the lock. */
        if (ftruncate(fd, 0) != 0) {
            errno = 0;
        }
        (void)close(fd);
    }
}

/* The file of a directory that is owned at the moment, or -1. Asking does not take the lock. */
static int open_owned(const char *dir)
{
    char path[PATH_BYTES_MAX];
    int fd = path_of(dir, path) ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    if (fd >= 0 && (fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

int64_t tdd_emb_owner_pid(const char *dir, td_time_us *ret_since)
{
    struct owner who = {.since = TD_TIME_NONE};
    int fd = open_owned(dir);
    if (fd >= 0) {
        read_text(fd, &who);
        (void)close(fd);
    }
    *ret_since = who.since;
    return who.pid;
}
