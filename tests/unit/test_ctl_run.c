#include "unit/test_ctl_run.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"

#define RUN_NS 20000000000       /* a run takes milliseconds; a sanitizer's a second */
#define SIGNAL_LATE_NS 300000000 /* by then it waits for what does not come */

struct ctl_service service;
struct ft_buf out, err_out;

void ctl_run_set_up(void) {
    ctl_service_open(&service);
    ft_buf_init(&out, 0);
    ft_buf_init(&err_out, 0);
}

void ctl_run_tear_down(void) {
    ft_buf_fini(&out);
    ft_buf_fini(&err_out);
    ctl_service_close(&service);
}

/* ---- running -------------------------------------------------------------------------------- */

static void open_output(const struct run *run, int fds[2]) {
    if (run->terminal) {
        fds[0] = posix_openpt(O_RDWR | O_NOCTTY);
        ck_assert_int_ge(fds[0], 0);
        ck_assert_int_eq(grantpt(fds[0]) | unlockpt(fds[0]), 0);
        fds[1] = open(ptsname(fds[0]), O_RDWR | O_NOCTTY);
        ck_assert_int_ge(fds[1], 0);
        fcntl(fds[0], F_SETFD, FD_CLOEXEC);
        return;
    }
    ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
    if (run->output != NULL) {
        close(fds[1]);
        fds[1] = open(run->output, O_WRONLY | O_CLOEXEC);
        ck_assert_int_ge(fds[1], 0);
    }
}

static pid_t spawn(const struct run *run, char **argv, int out_fd, int err_fd) {
    char variable[128] = "IGNORED=1";
    char tsan[512]; /* what a sanitizer needs to know of gRPC reaches the program too */
    const char *options = getenv("TSAN_OPTIONS");
    snprintf(tsan, sizeof tsan, "TSAN_OPTIONS=%s", options != NULL ? options : "");
    char *setting = (char *)(uintptr_t)run->setting; /* NULL ends the list */
    char *environment[] = {variable, "LSAN_OPTIONS=exitcode=99", tsan, setting, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    if (run->variable != NULL)
        snprintf(variable, sizeof variable, "FORETOKEN_ENDPOINT=%s", run->variable);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, run->input != NULL ? run->input : "/dev/null",
                                     O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out_fd, 1);
    posix_spawn_file_actions_adddup2(&actions, err_fd, 2);
    ck_assert_int_eq(posix_spawn(&pid, FT_TEST_CTL, &actions, NULL, argv, environment), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(out_fd);
    close(err_fd);
    return pid;
}

/* Append what is there; false at the end. */
static bool drain(int fd, struct ft_buf *buf) {
    char bytes[4096];
    ssize_t n = read(fd, bytes, sizeof bytes);
    if (n > 0)
        ft_buf_add(buf, bytes, (size_t)n);
    return n > 0;
}

/* Serve and read until both outputs end. */
static void attend(const struct run *run, pid_t pid, int out_fd, int err_fd) {
    int64_t begin = ft_clock_now_ns(), until = begin + RUN_NS;
    bool out_open = true, err_open = true, acted = false;
    while (out_open || err_open) {
        struct pollfd fds[2] = {{out_open ? out_fd : -1, POLLIN, 0},
                                {err_open ? err_fd : -1, POLLIN, 0}};
        ft_rpc_loop_step(service.loop, ft_clock_now_ns() + 1000000);
        poll(fds, 2, 0);
        if (fds[0].revents != 0)
            out_open = drain(out_fd, &out);
        if (fds[1].revents != 0)
            err_open = drain(err_fd, &err_out);
        if (err_out.len > 0 && run->signo_err != 0 && !acted) {
            acted = true;
            for (int i = 0; i < 50; i++) /* let the calls arrive */
                ft_rpc_loop_step(service.loop, ft_clock_now_ns() + 1000000);
            kill(pid, run->signo_err);
        }
        if (run->signo_late != 0 && !acted && ft_clock_now_ns() > begin + SIGNAL_LATE_NS) {
            acted = true;
            kill(pid, run->signo_late);
        }
        if (out.len > 0 && !acted) {
            acted = true;
            if (run->signo != 0)
                kill(pid, run->signo);
            out_open = out_open && !run->close_early;
            if (run->close_early)
                close(out_fd);
        }
        if (ft_clock_now_ns() > until) {
            kill(pid, SIGKILL);
            ck_abort_msg("foretokenctl did not end; standard error: %s", err_out.ptr);
        }
    }
    if (!run->close_early)
        close(out_fd);
    close(err_fd);
}

int run_with(struct run run, const char *const *args) {
    char *argv[64] = {"foretokenctl"};
    int n = 1, out_fds[2], err_fds[2], status;
    const char *endpoint = run.endpoint != NULL ? run.endpoint : service.endpoint;
    if (*endpoint != 0) {
        argv[n++] = "--endpoint";
        argv[n++] = (char *)(uintptr_t)endpoint;
    }
    while (*args != NULL && n < 63)
        argv[n++] = (char *)(uintptr_t)*args++;
    ft_buf_reset(&out);
    ft_buf_reset(&err_out);
    open_output(&run, out_fds);
    ck_assert_int_eq(pipe2(err_fds, O_CLOEXEC), 0);
    pid_t pid = spawn(&run, argv, out_fds[1], err_fds[1]);
    attend(&run, pid, out_fds[0], err_fds[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ft_buf_add(&out, "", 0);
    ft_buf_add(&err_out, "", 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void await_cancelled(int n) {
    int64_t until = ft_clock_now_ns() + RUN_NS;
    while (service.n_cancelled < n && ft_clock_now_ns() < until)
        ft_rpc_loop_step(service.loop, ft_clock_now_ns() + 10000000);
    ck_assert_int_eq(service.n_cancelled, n);
}

json_t *parse_output(void) {
    json_error_t where;
    json_t *root = json_loadb(out.ptr, out.len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &where);
    ck_assert_msg(root != NULL, "%s: %s", where.text, out.ptr);
    ck_assert_ptr_eq(memchr(out.ptr, '\n', out.len), out.ptr + out.len - 1);
    return root;
}

double number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_number(value), "%s", key);
    return json_number_value(value);
}

const char *text_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_string(value), "%s", key);
    return json_string_value(value);
}
