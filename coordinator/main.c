/* foretoken-coordinator: serves foretoken.v1 and drives the two workers. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/parent.h"
#include "common/base/settings.h"
#include "common/base/supervisor.h"
#include "coordinator/app.h"

static void print_problem(void *user, const struct ft_err *err) {
    (void)user;
    fprintf(stderr, "foretoken-coordinator: %s\n", err->text);
}

int main(int argc, char **argv, char **envp) {
    static struct co_app app;
    pid_t parent = getppid();
    struct ft_err err = {0};
    signal(SIGPIPE, SIG_IGN); /* whoever reads the log may go */
    ft_log_init("coordinator", FT_LOG_INFO);
    const char *trouble = ft_supervisor_open(envp);
    if (*trouble != 0)
        ft_warn("supervisor reason %s", trouble);
    bool checks =
        ft_settings_wants_check(argc, argv); /* then every problem is told, not the first alone */
    app.sources = (struct co_config_sources){argc, argv, envp, checks ? print_problem : NULL, NULL};
    enum ft_code code = co_config_read(&app.config, &app.sources, &err);
    if (code != FT_OK && ft_supervisor_has_journal())
        ft_error("start-failed reason %s", err.text);
    else if (code != FT_OK && !checks)
        print_problem(NULL, &err);
    if (code != FT_OK)
        return ft_code_exit_status(code);
    if (app.config.version)
        printf("foretoken-coordinator %s\n", CO_VERSION);
    if (app.config.version || app.config.help || app.config.checked)
        return ft_settings_printed("foretoken-coordinator");
    enum ft_log_level level = FT_LOG_INFO;
    ft_log_parse_level(app.config.log_level, &level);
    ft_log_set_level(level);
    if (app.config.die_with_parent)
        code = ft_parent_follow(parent, &err);
    ft_rpc_signals_block();
    if (code == FT_OK)
        code = co_app_open(&app, &err);
    if (code == FT_OK) {
        ft_rpc_loop_run(app.loop);
    } else {
        ft_error("start-failed reason %s", err.text);
        app.exit_status = ft_code_exit_status(code);
    }
    co_app_close(&app);
    return app.exit_status;
}
