/* program: what both worker programs do from argv to the exit status.
 * Owns:    loop, worker and service while it runs.
 * Runs in: draft_worker, target_worker.
 * Never:   logs but by the role. */
#ifndef FT_WORKER_PROGRAM_H
#define FT_WORKER_PROGRAM_H

#include "common/worker/worker.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_program {
    const char *name;    /* "foretoken-target" */
    const char *section; /* of foretoken.conf: "target" */
    const char *usage;   /* printed before the table of parameters */
    const struct ft_worker_role *role;
    struct ft_param_table params; /* rows of struct ft_worker_params */
};

/* The whole of main: serve until SIGTERM or SIGINT; --help, --version and --check-config return at
 * once. SIGHUP reads file, environment and command line again and takes over what is reloadable.
 * systemd, where it listens, is told of the load, readiness, reload and stop, and its watchdog is
 * fed by the loop. Returns the exit status: FT_E_PROC_CONFIG's or FT_E_PROC_MODEL's before anything
 * is served, or that of why serving ended. */
int ft_program_main(const struct ft_program *program, int argc, char **argv, char **envp);

#ifdef __cplusplus
}
#endif
#endif
