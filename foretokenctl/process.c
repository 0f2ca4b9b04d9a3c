#include "foretokenctl/process.h"

#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODULE "process"

static enum ft_code find_beside(char out[PATH_MAX], const char *name, struct ft_err *err) {
    ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
    if (n < 0)
        return ft_err_set_os(err, FT_E_PROC_OS, errno, MODULE, "/proc/self/exe");
    out[n] = 0;
    char *base = strrchr(out, '/') + 1;
    size_t room = PATH_MAX - (size_t)(base - out);
    int len = snprintf(base, room, "%s", name);
    if (len < 0 || (size_t)len >= room || access(out, X_OK) != 0)
        return ft_err_set(err, FT_E_REQ_NOT_FOUND, MODULE,
                          "%s is not beside foretokenctl, which asks it to read its section", name);
    return FT_OK;
}

/* Appends what lies in the file fd from its start. */
static void collect(int fd, size_t bytes_max, struct ft_buf *out) {
    char chunk[4096];
    off_t at = 0;
    ssize_t n;
    while (out->len < bytes_max && (n = pread(fd, chunk, sizeof chunk, at)) > 0) {
        ft_buf_add(out, chunk, (size_t)n);
        at += n;
    }
}

static int exit_status(int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

enum ft_code ctl_process_run(struct ctl_process *process, const char *const *argv,
                             struct ft_err *err) {
    char path[PATH_MAX];
    char *no_environment[] = {NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = 0;
    ft_buf_init(&process->out, 0);
    ft_buf_init(&process->err, 0);
    enum ft_code code = find_beside(path, argv[0], err);
    if (code != FT_OK)
        return code;
    /* Files and not pipes: both are whole once the process has ended, however much it wrote. */
    int out = memfd_create("out", MFD_CLOEXEC), errors = memfd_create("err", MFD_CLOEXEC);
    if (out < 0 || errors < 0) {
        code = ft_err_set_os(err, FT_E_PROC_OS, errno, MODULE, "memfd_create");
        goto done;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
    int rc =
        posix_spawn(&pid, path, &actions, NULL, (char *const *)(uintptr_t)argv, no_environment);
    posix_spawn_file_actions_destroy(&actions);
    if (rc != 0) {
        code = ft_err_set_os(err, FT_E_PROC_OS, rc, MODULE, "cannot start %s", path);
        goto done;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    process->status = exit_status(status);
    collect(out, process->output_max, &process->out);
    collect(errors, process->output_max, &process->err);
done:
    if (out >= 0)
        close(out);
    if (errors >= 0)
        close(errors);
    return code;
}

void ctl_process_fini(struct ctl_process *process) {
    ft_buf_fini(&process->out);
    ft_buf_fini(&process->err);
}
