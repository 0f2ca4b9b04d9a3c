/* process (ctl): another program of ours, run to its end.
 * Owns:    what it wrote, from run to fini.
 * Runs in: foretokenctl; one thread.
 * Never:   looks for programs elsewhere than beside this one; hands its environment on. */
#ifndef CTL_PROCESS_H
#define CTL_PROCESS_H

#include "common/base/buf.h"
#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ctl_process {
    size_t output_max;      /* bytes of each; what is written beyond is dropped */
    struct ft_buf out, err; /* what it wrote */
    int status;             /* of its exit; 128 + N after a signal */
};

/* argv ends with NULL; argv[0] names a program in the folder of this one.
 * fail FT_E_REQ_NOT_FOUND: it is not there; FT_E_PROC_OS */
enum ft_code ctl_process_run(struct ctl_process *process, const char *const *argv,
                             struct ft_err *err);
void ctl_process_fini(struct ctl_process *process);

#ifdef __cplusplus
}
#endif
#endif
