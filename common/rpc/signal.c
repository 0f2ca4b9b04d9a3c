#include "common/rpc/rpc_internal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* A completion queue cannot wait for a file descriptor, so a thread does it. */
struct ft_rpc_signals {
    struct ft_rpc_loop *loop;
    ft_rpc_signal_fn fn;
    void *user;
    int signal_fd;
    int quit_fd;
    pthread_t thread;
    bool ended; /* loop thread: letters that are still on their way are not for anyone */
};

static sigset_t handled_set(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    return set;
}

void ft_rpc_signals_block(void) {
    sigset_t set = handled_set();
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void deliver(struct ft_rpc_signals *signals, int signo) {
    if (!signals->ended)
        signals->fn(signals->user, signo);
}

static void deliver_term(void *user) {
    deliver(user, SIGTERM);
}

static void deliver_int(void *user) {
    deliver(user, SIGINT);
}

static void deliver_hup(void *user) {
    deliver(user, SIGHUP);
}

static void *watch(void *user) {
    struct ft_rpc_signals *signals = user;
    struct pollfd fds[2] = {{.fd = signals->signal_fd, .events = POLLIN},
                            {.fd = signals->quit_fd, .events = POLLIN}};
    for (;;) {
        if (poll(fds, 2, -1) < 0)
            continue;
        if (fds[1].revents != 0)
            return NULL;
        struct signalfd_siginfo info;
        if (read(signals->signal_fd, &info, sizeof info) != (ssize_t)sizeof info)
            continue;
        ft_rpc_fn fn = info.ssi_signo == SIGTERM  ? deliver_term
                       : info.ssi_signo == SIGINT ? deliver_int
                                                  : deliver_hup;
        /* When the mailbox is full the loop is stuck, and a second signal may be tried. */
        ft_rpc_loop_post(signals->loop, fn, signals);
    }
}

enum ft_code ft_rpc_loop_on_signal(struct ft_rpc_loop *loop, ft_rpc_signal_fn fn, void *user,
                                   struct ft_err *err) {
    FT_ASSERT(loop->signals == NULL);
    enum ft_code code;
    struct ft_rpc_signals *signals = calloc(1, sizeof *signals);
    if (signals == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "rpc", "no memory for the signal watch");
    signals->loop = loop;
    signals->fn = fn;
    signals->user = user;
    sigset_t set = handled_set();
    signals->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals->signal_fd < 0) {
        code = ft_err_set_os(err, FT_E_PROC_OS, errno, "rpc", "signalfd");
        goto fail_signal_fd;
    }
    signals->quit_fd = eventfd(0, EFD_CLOEXEC);
    if (signals->quit_fd < 0) {
        code = ft_err_set_os(err, FT_E_PROC_OS, errno, "rpc", "eventfd");
        goto fail_quit_fd;
    }
    int rc = pthread_create(&signals->thread, NULL, watch, signals);
    if (rc != 0) {
        code = ft_err_set_os(err, FT_E_PROC_OS, rc, "rpc", "cannot start the signal thread");
        goto fail_thread;
    }
    loop->signals = signals;
    return FT_OK;

fail_thread:
    close(signals->quit_fd);
fail_quit_fd:
    close(signals->signal_fd);
fail_signal_fd:
    free(signals);
    return code;
}

void ft_rpc_signals_end(struct ft_rpc_signals *signals) {
    if (signals == NULL)
        return;
    signals->ended = true;
    eventfd_write(signals->quit_fd, 1);
    pthread_join(signals->thread, NULL);
}

void ft_rpc_signals_close(struct ft_rpc_signals **signals) {
    struct ft_rpc_signals *s = *signals;
    if (s == NULL)
        return;
    *signals = NULL;
    FT_ASSERT(s->ended);
    close(s->quit_fd);
    close(s->signal_fd);
    free(s);
}
