/* foretoken-draft: drafts tokens with the draft model. */
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
    return ft_program_main(&program, argc, argv, envp);
}
