#include "common/worker/program.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/parent.h"
#include "common/base/settings.h"
#include "common/base/supervisor.h"
#include "common/rpc/watchdog.h"
#include "common/worker/service.h"

#define MODULE "program"

/* systemd's patience until a load first says how far it is. */
#define LOAD_GRACE_US 600000000LL

struct running {
    const struct ft_program *program;
    int argc;
    char **argv, **envp;
    pid_t parent; /* when the process began */
    struct ft_worker_params params;
    struct ft_rpc_loop *loop;
    bool stopping; /* a signal came, and systemd has been told */
    bool done;     /* what was asked for is printed */
};

/* ---- parameters ----------------------------------------------------------------------------- */

static enum ft_code check_model(const struct ft_worker_params *params, struct ft_err *err) {
    static const char *const files[] = {"config.json", "tokenizer.json"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[2 * FT_PARAM_STR_MAX];
        enum ft_code code = ft_file_join(path, sizeof path, params->model, files[i], err);
        if (code != FT_OK)
            return code;
        if (access(path, R_OK) != 0)
            return ft_err_set_os(err, FT_E_PROC_MODEL, errno, MODULE,
                                 "model is '%s': cannot read %s", params->model, path);
    }
    return FT_OK;
}

/* Whoever reaches a worker reads what it computes, so it is never reached from another host, and
 * on this one the socket says who asks. */
static enum ft_code check_listen(const struct ft_worker_params *params, struct ft_err *err) {
    bool is_unix = false, is_local = false;
    enum ft_code code = ft_rpc_endpoint_check(params->listen, &is_unix, &is_local, err);
    if (code != FT_OK || is_unix)
        return code == FT_OK ? FT_OK : ft_err_prefix(err, "listen");
    return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                      "listen is '%s': a worker listens on a Unix socket, unix:PATH",
                      params->listen);
}

static enum ft_code check(const struct ft_worker_params *params, struct ft_err *err) {
    if (params->listen[0] == 0)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "listen is not set: give --listen unix:PATH");
    enum ft_code code = check_listen(params, err);
    if (code == FT_OK)
        code = ft_worker_check_params(params, err);
    return code;
}

/* What a start would find wrong beyond the parameters themselves. */
static enum ft_code check_start(const struct running *running,
                                const struct ft_worker_params *params,
                                struct ft_worker_facts *facts, struct ft_err *err) {
    struct ft_rpc_socket_rule rule = {.group = params->socket_group, .users = params->socket_users};
    enum ft_code code = ft_rpc_socket_rule_check(&rule, err);
    if (code == FT_OK)
        code = check_model(params, err);
    if (code != FT_OK)
        return code;
    return ft_worker_check_files(running->program->role, params, facts, err);
}

/* The parameters, and as comments what the other processes must agree with. */
static void print_settings(const struct ft_settings *settings,
                           const struct ft_worker_params *params,
                           const struct ft_worker_facts *facts) {
    ft_settings_print(settings, stdout);
    printf("# longest_sequence = %d ; of %s\n", facts->len_max, params->model);
    ft_settings_print_bytes("tokenizer_fingerprint", facts->fingerprint, sizeof facts->fingerprint,
                            params->model, stdout);
}

static void print_problem(void *user, const struct ft_err *err) {
    const struct ft_program *program = user;
    fprintf(stderr, "%s: %s\n", program->name, err->text);
}

/* Parameters from all their sources; *done when they were all that was asked for. */
static enum ft_code read_params(const struct running *running, struct ft_worker_params *params,
                                bool *done, struct ft_err *err) {
    const struct ft_program *program = running->program;
    struct ft_settings settings = {
        .table = &program->params,
        .values = params,
        .section = program->section,
        .usage = program->usage,
        .argc = running->argc,
        .argv = running->argv,
        .envp = running->envp,
        .user = (void *)(uintptr_t)program,
    };
    memset(params, 0, sizeof *params);
    if (ft_settings_wants_check(settings.argc, settings.argv))
        settings.on_problem = print_problem;
    enum ft_code code = ft_settings_read(&settings, err);
    *done = settings.help || settings.version || settings.check;
    if (settings.version)
        printf("%s %s\n", program->name, FT_VERSION);
    if (code != FT_OK || settings.help || settings.version)
        return code;
    struct ft_worker_facts facts;
    code = check(params, err);
    if (code == FT_OK && settings.check)
        code = check_start(running, params, &facts, err);
    if (code != FT_OK) {
        ft_settings_blame(&settings, err);
        if (settings.on_problem != NULL)
            settings.on_problem(settings.user, err);
    } else if (settings.check) {
        print_settings(&settings, params, &facts);
    }
    return code;
}

static void set_log_level(const struct ft_worker_params *params) {
    enum ft_log_level level;
    if (ft_log_parse_level(params->log_level, &level))
        ft_log_set_level(level);
}

/* ---- reload --------------------------------------------------------------------------------- */

static void say_change(void *user, const struct ft_param *row, const char *now, const char *fresh) {
    const struct running *running = user;
    char line[2 * FT_PARAM_STR_MAX + 128];
    if (row->reach == FT_PARAM_LIVE)
        snprintf(line, sizeof line, "reloaded key %s from \"%s\" to \"%s\"", row->name, now, fresh);
    else
        snprintf(line, sizeof line,
                 "reload-refused key %s running \"%s\" configured \"%s\" reason it takes a restart",
                 row->name, now, fresh);
    running->program->role->notify(row->reach == FT_PARAM_LIVE ? FT_LOG_INFO : FT_LOG_WARN, line);
}

static void reload(struct running *running) {
    const struct ft_program *program = running->program;
    struct ft_worker_params fresh;
    struct ft_err err = {0};
    char line[FT_ERR_TEXT_MAX + 64];
    bool done;
    ft_supervisor_notify_reloading();
    if (read_params(running, &fresh, &done, &err) != FT_OK) {
        snprintf(line, sizeof line, "reload-failed reason %s", err.text);
        program->role->notify(FT_LOG_ERROR, line);
    } else {
        int32_t n_kept =
            ft_param_reload(&program->params, &running->params, &fresh, say_change, running);
        set_log_level(&running->params);
        snprintf(line, sizeof line, "reload-done need_restart %d", (int)n_kept);
        program->role->notify(FT_LOG_INFO, line);
    }
    ft_supervisor_notify("READY=1");
}

static void on_signal(void *user, int signo) {
    struct running *running = user;
    if (signo == SIGHUP) {
        if (!running->stopping) /* a reload ends with READY */
            reload(running);
        return;
    }
    running->stopping = true;
    ft_supervisor_notify("STOPPING=1\nSTATUS=stopping");
    ft_rpc_loop_stop(running->loop);
}

/* ---- serve ---------------------------------------------------------------------------------- */

static enum ft_code tell_ready(const struct ft_worker_params *params, struct ft_err *err) {
    static const char line[] = "ready\n";
    if (params->ready_fd < 0)
        return FT_OK;
    ssize_t n = write(params->ready_fd, line, sizeof line - 1);
    if (n != (ssize_t)sizeof line - 1)
        return ft_err_set_os(err, FT_E_PROC_CONFIG, n < 0 ? errno : 0, MODULE, "ready_fd %d",
                             params->ready_fd);
    close(params->ready_fd);
    return FT_OK;
}

static void notify_ready(const struct ft_worker *worker) {
    char line[1024];
    int32_t n_blocks = ft_kvpool_total(worker->pool);
    int64_t n_positions = (int64_t)n_blocks * ft_kvpool_block_tokens(worker->pool);
    snprintf(line, sizeof line,
             "ready model \"%s\" backend \"%s\" kv_layout %s kv_blocks %d kv_positions %" PRId64
             " max_model_len %d epoch %016" PRIx64 " listen %s",
             worker->params->model, ft_model_backend(worker->model), worker->params->kv_layout,
             n_blocks, n_positions, worker->len_max, worker->epoch, worker->params->listen);
    worker->role->notify(FT_LOG_INFO, line);
    if (!ft_supervisor_notify("READY=1\nSTATUS=%s loaded, listening on %s", worker->params->model,
                              worker->params->listen))
        worker->role->notify(FT_LOG_WARN, "supervisor reason systemd could not be told of READY");
    if (n_positions >= worker->len_max)
        return;
    snprintf(line, sizeof line,
             "kv-small kv_positions %" PRId64 " max_model_len %d effect \"the longest sequences "
             "cannot be held\"",
             n_positions, worker->len_max);
    worker->role->notify(FT_LOG_WARN, line);
}

/* The worker is loaded: serve until a signal or a failure that the process should not outlive. */
static enum ft_code serve(struct running *running, struct ft_worker *worker, struct ft_err *err) {
    struct ft_service *service = NULL;
    struct ft_rpc_watchdog watchdog = {0};
    enum ft_code code =
        ft_rpc_loop_create(&running->loop, (int64_t)running->params.spin_us * 1000, err);
    if (code != FT_OK)
        return code;
    code = ft_rpc_loop_on_signal(running->loop, on_signal, running, err);
    if (code == FT_OK)
        code = ft_rpc_watchdog_open(&watchdog, running->loop, err);
    if (code == FT_OK)
        code = ft_service_open(&service, running->loop, worker, err);
    if (code == FT_OK)
        code = tell_ready(&running->params, err);
    if (code == FT_OK) {
        notify_ready(worker);
        ft_rpc_loop_run(running->loop);
        code = ft_service_failure(service)->code;
        if (code != FT_OK)
            *err = *ft_service_failure(service);
    }
    ft_service_close(&service);
    ft_rpc_watchdog_close(&watchdog);
    ft_rpc_loop_destroy(&running->loop);
    if (code == FT_OK)
        worker->role->notify(FT_LOG_INFO, "stopped");
    return code;
}

static enum ft_code run(struct running *running, struct ft_err *err) {
    enum ft_code code = read_params(running, &running->params, &running->done, err);
    if (code != FT_OK || running->done)
        return code;
    set_log_level(&running->params);
    if (running->params.die_with_parent)
        code = ft_parent_follow(running->parent, err);
    if (code != FT_OK)
        return code;
    /* Before the model starts threads. A signal during the load waits for its end. */
    ft_rpc_signals_block();
    ft_supervisor_notify("EXTEND_TIMEOUT_USEC=%lld\nSTATUS=loading %s", LOAD_GRACE_US,
                         running->params.model);
    struct ft_worker *worker = NULL;
    code = ft_worker_open(&worker, running->program->role, &running->params, err);
    if (code == FT_OK)
        code = serve(running, worker, err);
    if (code != FT_OK)
        ft_supervisor_notify("STATUS=failed: %s", err->text);
    ft_worker_close(&worker);
    return code;
}

int ft_program_main(const struct ft_program *program, int argc, char **argv, char **envp) {
    struct running running = {
        .program = program, .argc = argc, .argv = argv, .envp = envp, .parent = getppid()};
    struct ft_err err = {0};
    char line[FT_ERR_TEXT_MAX + 64];
    signal(SIGPIPE, SIG_IGN); /* whoever reads the log may go */
    ft_log_init(program->role->name, FT_LOG_INFO);
    const char *trouble = ft_supervisor_open(envp);
    if (*trouble != 0) {
        snprintf(line, sizeof line, "supervisor reason %s", trouble);
        program->role->notify(FT_LOG_WARN, line);
    }
    enum ft_code code = run(&running, &err);
    if (code == FT_OK && running.done)
        return ft_settings_printed(program->name);
    if (code != FT_OK && !ft_settings_wants_check(argc, argv)) { /* else it has been said */
        snprintf(line, sizeof line, "failed reason %s", err.text);
        program->role->notify(FT_LOG_ERROR, line);
    }
    return ft_code_exit_status(code);
}
