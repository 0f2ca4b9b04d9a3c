#include "common/worker/program.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/rpc/rpc.h"
#include "common/worker/service.h"

#define MODULE "program"

static void on_signal(void *user, int signo) {
    if (signo != SIGHUP) /* there is nothing to reload */
        ft_rpc_loop_stop(user);
}

static bool wants_version(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--version") == 0)
            return true;
    return false;
}

static enum ft_code parse(const struct ft_program *program, int argc, char **argv,
                          struct ft_worker_params *params, bool *help, struct ft_err *err) {
    struct ft_param_args args = {.argc = argc, .argv = argv, .usage = program->usage};
    enum ft_code code = ft_param_defaults(&program->params, params, err);
    if (code == FT_OK)
        code = ft_param_parse(&program->params, params, &args, err);
    if (code != FT_OK)
        return code;
    *help = args.help;
    enum ft_log_level level;
    if (ft_log_parse_level(params->log_level, &level))
        ft_log_set_level(level);
    if (!args.help && params->listen[0] == 0)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "listen is not set: give --listen unix:PATH");
    return FT_OK;
}

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
    char line[640];
    int32_t n_blocks = ft_kvpool_total(worker->pool);
    int64_t n_positions = (int64_t)n_blocks * FT_KV_BLOCK_TOKENS;
    snprintf(line, sizeof line,
             "ready model %s backend \"%s\" kv_blocks %d kv_positions %" PRId64
             " max_model_len %d epoch %016" PRIx64 " listen %s",
             worker->params->model, ft_model_backend(worker->model), n_blocks, n_positions,
             worker->len_max, worker->epoch, worker->params->listen);
    worker->role->notify(FT_LOG_INFO, line);
    if (n_positions >= worker->len_max)
        return;
    snprintf(line, sizeof line,
             "kv-small kv_positions %" PRId64 " max_model_len %d effect \"the longest sequences "
             "cannot be held\"",
             n_positions, worker->len_max);
    worker->role->notify(FT_LOG_WARN, line);
}

/* The worker is loaded: serve until a signal or a failure that the process should not outlive. */
static enum ft_code serve(struct ft_worker *worker, struct ft_err *err) {
    struct ft_rpc_loop *loop = NULL;
    struct ft_service *service = NULL;
    enum ft_code code = ft_rpc_loop_create(&loop, (int64_t)worker->params->spin_us * 1000, err);
    if (code != FT_OK)
        return code;
    code = ft_rpc_loop_on_signal(loop, on_signal, loop, err);
    if (code == FT_OK)
        code = ft_service_open(&service, loop, worker, err);
    if (code == FT_OK)
        code = tell_ready(worker->params, err);
    if (code == FT_OK) {
        notify_ready(worker);
        ft_rpc_loop_run(loop);
        code = ft_service_failure(service)->code;
        if (code != FT_OK)
            *err = *ft_service_failure(service);
    }
    ft_service_close(&service);
    ft_rpc_loop_destroy(&loop);
    if (code == FT_OK)
        worker->role->notify(FT_LOG_INFO, "stopped");
    return code;
}

enum ft_code ft_program_run(const struct ft_program *program, int argc, char **argv,
                            struct ft_err *err) {
    struct ft_worker_params params;
    bool help = false;
    if (wants_version(argc, argv)) {
        printf("%s %s\n", program->name, FT_VERSION);
        return FT_OK;
    }
    memset(&params, 0, sizeof params);
    enum ft_code code = parse(program, argc, argv, &params, &help, err);
    if (code != FT_OK || help)
        return code;
    if (params.die_with_parent && prctl(PR_SET_PDEATHSIG, SIGTERM) != 0)
        return ft_err_set_os(err, FT_E_PROC_OS, errno, MODULE, "die_with_parent");
    /* Before the model starts threads. A signal during the load waits for its end. */
    ft_rpc_signals_block();
    struct ft_worker *worker = NULL;
    code = ft_worker_open(&worker, program->role, &params, err);
    if (code == FT_OK)
        code = serve(worker, err);
    ft_worker_close(&worker);
    return code;
}
