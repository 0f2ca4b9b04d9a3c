/* foretoken-draft: drafts tokens with the draft model. */
#include "common/base/settings.h"
#include "common/base/supervisor.h"
#include "common/worker/program.h"
#include "draft_worker/draft.h"

static const struct ft_param k_params[] = {
#define X FT_WORKER_PARAM_ROW
#include "common/worker/params.def"
#include "draft_worker/params.def"
#undef X
};

int main(int argc, char **argv, char **envp) {
    static const struct ft_program program = {
        .name = "foretoken-draft",
        .section = "draft",
        .usage = "foretoken-draft --model DIR --listen unix:PATH [options]",
        .role = &dw_draft_role,
        .params = {k_params, sizeof k_params / sizeof k_params[0]},
    };
    struct ft_err err = {0};
    ft_log_init(program.role->name, FT_LOG_INFO);
    const char *trouble = ft_supervisor_open(envp);
    if (*trouble != 0)
        ft_warn("supervisor reason %s", trouble);
    enum ft_code code = ft_program_run(&program, &(struct ft_program_args){argc, argv, envp}, &err);
    if (code != FT_OK && !ft_settings_wants_check(argc, argv)) /* else it has been said */
        ft_error("failed reason \"%s\"", err.text);
    return ft_code_exit_status(code);
}
