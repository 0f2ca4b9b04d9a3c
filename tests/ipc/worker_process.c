#include "ipc/worker_process.h"

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "support/awake.h"
#include "support/fixtures.h"

extern char **environ;

enum { READY_FD = 9, PATIENCE_MS = 30000 };

void worker_process_init(struct worker_process *p, const char *role) {
    memset(p, 0, sizeof *p);
    p->role = role;
    p->dir = ft_fixture_temp_dir();
    snprintf(p->endpoint, sizeof p->endpoint, "unix:%s/w.sock", p->dir);
}

static int exit_status(int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int reap(struct worker_process *p) {
    int64_t begin_ns = ft_awake_ns();
    int status = 0;
    while (waitpid(p->pid, &status, WNOHANG) == 0) {
        p->exit_ms = (int)((ft_awake_ns() - begin_ns) / 1000000);
        if (p->exit_ms > PATIENCE_MS) {
            kill(p->pid, SIGKILL);
            ck_abort_msg("the %s worker does not end", p->role);
        }
        usleep(1000);
    }
    p->pid = 0;
    struct ft_buf log = ft_fixture_read(p->dir, "log");
    snprintf(p->log, sizeof p->log, "%.*s", (int)log.len, log.len > 0 ? log.ptr : "");
    ft_buf_fini(&log);
    return exit_status(status);
}

static void spawn(struct worker_process *p, char *const *argv, int ready_fd) {
    char log[192];
    snprintf(log, sizeof log, "%s/log", p->dir);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ready_fd, READY_FD);
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
        posix_spawn_file_actions_addopen(&actions, fd, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    unlink(log);
    int failed = posix_spawn(&p->pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    ck_assert_msg(failed == 0, "cannot start %s: %s", argv[0], strerror(failed));
}

int worker_process_start(struct worker_process *p, const char *model, const char *const *args) {
    char program[192], listen[224], model_arg[320];
    char *argv[WORKER_ARGS_MAX + 6];
    int n = 0, fds[2];
    snprintf(program, sizeof program, "%s/bin/foretoken-%s", FT_TEST_BINARY_DIR, p->role);
    snprintf(listen, sizeof listen, "--listen=%s", p->endpoint);
    snprintf(model_arg, sizeof model_arg, "--model=%s", model != NULL ? model : "");
    argv[n++] = program;
    if (model != NULL) {
        argv[n++] = model_arg;
        argv[n++] = listen;
    }
    argv[n++] = (char[]){"--ready_fd=9"};
    argv[n++] = (char[]){"--die_with_parent"};
    for (int i = 0; args != NULL && args[i] != NULL && i < WORKER_ARGS_MAX; i++)
        argv[n++] = (char *)(uintptr_t)args[i];
    argv[n] = NULL;
    ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
    int64_t begin_ns = ft_awake_ns();
    spawn(p, argv, fds[1]);
    close(fds[1]);
    struct pollfd ready = {.fd = fds[0], .events = POLLIN};
    ck_assert_msg(poll(&ready, 1, PATIENCE_MS) == 1, "the %s worker is not ready", p->role);
    char line[8];
    ssize_t got = read(fds[0], line, sizeof line);
    close(fds[0]);
    p->ready_ms = (int)((ft_awake_ns() - begin_ns) / 1000000);
    return got == 6 && memcmp(line, "ready\n", 6) == 0 ? 0 : reap(p);
}

int worker_process_kill(struct worker_process *p, int signo) {
    ck_assert_int_ne(p->pid, 0);
    kill(p->pid, signo);
    return reap(p);
}

void worker_process_end(struct worker_process *p) {
    if (p->pid != 0)
        worker_process_kill(p, SIGKILL);
    ft_fixture_remove_dir(p->dir);
}
