/*
 * Unix sockets in the broker's directory. An address holds about a hundred bytes; a longer path is
 * reached through /proc/self/fd, without changing the working directory.
 *
 * Must not know: frames, the broker.
 */
#include "broker/embedded/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_FILE "broker.sock"
#define BACKLOG 64

/* *ret_dir_fd: -1, or to be closed after use of the address. */
static bool address_of(const char *dir, struct sockaddr_un *ret, int *ret_dir_fd)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    *ret_dir_fd = -1;
    int n = snprintf(ret->sun_path, sizeof(ret->sun_path), "%s/" SOCKET_FILE, dir);
    if (n > 0 && n < (int)sizeof(ret->sun_path)) {
        return true;
    }
    *ret_dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*ret_dir_fd < 0) {
        return false;
    }
    n = snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/" SOCKET_FILE,
                 *ret_dir_fd);
    return n > 0;
}

static enum td_err fail(const char *dir, const char *what, int e, struct td_error *err)
{
    return td_error_set(err, e == EACCES || e == EPERM ? TD_ERR_DENIED : TD_ERR_IO,
                        "%s/" SOCKET_FILE " %s: %s", dir, what, strerrordesc_np(e));
}

void tdd_emb_socket_unlink(const char *dir)
{
    char path[4096];
    int n = snprintf(path, sizeof(path), "%s/" SOCKET_FILE, dir);
    if (n > 0 && n < (int)sizeof(path)) {
        (void)unlink(path);
    }
}

static void close_fd(int fd)
{
    if (fd >= 0) {
        (void)close(fd);
    }
}

enum td_err tdd_emb_socket_listen(const char *dir, int *ret_fd, struct td_error *err)
{
    struct sockaddr_un address;
    int dir_fd = -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* Whoever asks owns the directory, so what is there is a dead owner's. */
    tdd_emb_socket_unlink(dir);
    /* The mode of the socket's inode becomes the file's: nobody can connect in between. */
    bool good = fd >= 0 && address_of(dir, &address, &dir_fd) && fchmod(fd, 0600) == 0 &&
                bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 &&
                listen(fd, BACKLOG) == 0;
    int e = errno;
    close_fd(dir_fd);
    if (!good) {
        close_fd(fd);
        return fail(dir, "cannot be made", e, err);
    }
    *ret_fd = fd;
    return TD_OK;
}

enum td_err tdd_emb_socket_connect(const char *dir, td_time_us timeout_us, int *ret_fd,
                                   struct td_error *err)
{
    struct sockaddr_un address;
    int dir_fd = -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval wait = {.tv_sec = (time_t)(timeout_us / TD_SECOND_US),
                           .tv_usec = (suseconds_t)(timeout_us % TD_SECOND_US)};
    bool good = fd >= 0 && address_of(dir, &address, &dir_fd) &&
                setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) == 0 &&
                connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;
    int e = errno;
    good = good && fcntl(fd, F_SETFL, O_NONBLOCK) == 0;
    close_fd(dir_fd);
    if (good) {
        *ret_fd = fd;
        return TD_OK;
    }
    close_fd(fd);
    if (e == ENOENT || e == ECONNREFUSED) {
        return td_error_set(err, TD_ERR_UNAVAILABLE,
                            "no process runs the broker in %s; start tidings run", dir);
    }
    if (e == EAGAIN || e == EINPROGRESS) {
        return td_error_set(err, TD_ERR_BUSY, "the broker in %s does not answer", dir);
    }
    return fail(dir, "cannot be reached", e, err);
}
