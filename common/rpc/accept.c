/* accept: gRPC's listeners survive a process that has run out of file descriptors. The core gives a
 * listener up for good when accept4 fails with EMFILE or ENFILE. The name below comes before
 * libc's: it turns such connections away, one by one, through a descriptor kept for that, and says
 * that nothing is waiting; the next connection finds the listener as it was. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/rpc/rpc_internal.h"

/* Turned away in a row, before others get their turn. */
#define TURNED_AWAY_MAX 4096

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static int g_spare = -1; /* of the process: a descriptor that is one too many for it */

static int spare_open(void) {
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void ft_rpc_accept_guard(void) {
    pthread_mutex_lock(&g_lock);
    if (g_spare < 0)
        g_spare = spare_open();
    pthread_mutex_unlock(&g_lock);
}

static int accept_now(int fd, struct sockaddr *address, socklen_t *len, int flags) {
    return (int)syscall(SYS_accept4, fd, address, len, flags);
}

/* What waits is told that the connection is closed, which its client sees as UNAVAILABLE. */
static void turn_away(int fd) {
    pthread_mutex_lock(&g_lock);
    if (g_spare >= 0)
        close(g_spare);
    for (int i = 0; i < TURNED_AWAY_MAX; i++) {
        int waiting = accept_now(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (waiting < 0)
            break;
        close(waiting);
    }
    g_spare = spare_open();
    pthread_mutex_unlock(&g_lock);
}

/* The symbol is accept4; its C declaration in libc's header has a type of its own. */
int ft_rpc_accept_guarded(int fd, struct sockaddr *address, socklen_t *len,
                          int flags) __asm__("accept4");

int ft_rpc_accept_guarded(int fd, struct sockaddr *address, socklen_t *len, int flags) {
    int accepted = accept_now(fd, address, len, flags);
    if (accepted >= 0 || (errno != EMFILE && errno != ENFILE))
        return accepted;
    turn_away(fd);
    errno = EAGAIN;
    return -1;
}
