/* foretoken-target: serves the rows of the target model. */
#include "common/worker/program.h"
#include "target_worker/verify.h"

static const struct ft_param k_params[] = {
#define X FT_WORKER_PARAM_ROW
#include "common/worker/params.def"
#include "target_worker/params.def"
#undef X
};

int main(int argc, char **argv, char **envp) {
    static const struct ft_program program = {
        .name = "foretoken-target",
        .section = "target",
        .usage = "foretoken-target --model DIR --listen unix:PATH [options]",
        .role = &tw_verify_role,
        .params = {k_params, sizeof k_params / sizeof k_params[0]},
    };
    return ft_program_main(&program, argc, argv, envp);
}
