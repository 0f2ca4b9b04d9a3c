#include "support/fake_draft.h"

#include <check.h>
#include <poll.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { PATIENCE_MS = 30000 };

struct fake_draft {
    pid_t pid;
    int socket;
};

/* The next packet, of exactly that many bytes. */
static void hear(const struct fake_draft *fake, void *out, size_t bytes) {
    struct pollfd socket = {.fd = fake->socket, .events = POLLIN};
    ck_assert_msg(poll(&socket, 1, PATIENCE_MS) == 1, "the fake draft worker says nothing");
    ck_assert_int_eq(recv(fake->socket, out, bytes, 0), (ssize_t)bytes);
}

struct fake_draft *fake_draft_start(const char *endpoint, struct ft_str describe) {
    struct fake_draft *fake = calloc(1, sizeof *fake);
    char *argv[] = {(char[]){FT_TEST_FAKE_DRAFT}, (char *)(uintptr_t)endpoint, NULL};
    char ready[sizeof FAKE_DRAFT_READY];
    int fds[2];
    /* When the test dies its end is closed, and the process ends too. */
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], STDIN_FILENO);
    int failed = posix_spawn(&fake->pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    ck_assert_msg(failed == 0, "cannot start %s: %s", argv[0], strerror(failed));
    fake->socket = fds[0];
    ck_assert_uint_le(describe.len, FAKE_DRAFT_DESCRIBE_MAX);
    ck_assert_int_eq(send(fake->socket, describe.ptr, describe.len, MSG_NOSIGNAL),
                     (ssize_t)describe.len);
    hear(fake, ready, sizeof ready);
    return fake;
}

int fake_draft_stop(struct fake_draft *fake) {
    int n_steps, status;
    shutdown(fake->socket, SHUT_WR);
    hear(fake, &n_steps, sizeof n_steps);
    close(fake->socket);
    waitpid(fake->pid, &status, 0);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status 0x%x", status);
    free(fake);
    return n_steps;
}
