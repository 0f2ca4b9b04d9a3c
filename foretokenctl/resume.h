/* resume (ctl): the output of a batch, and where one that was broken off goes on.
 * Owns:    the open, locked file, from open to close.
 * Runs in: foretokenctl; one thread.
 * Never:   changes a result that is complete; takes a file that is no such output. */
#ifndef CTL_RESUME_H
#define CTL_RESUME_H

#include <stdint.h>
#include <stdio.h>

#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ctl_resume {
    FILE *file;         /* at its end */
    uint64_t last_line; /* of the input, whose result is there; 0: none */
    uint64_t n_done;    /* results */
    uint64_t n_failed;  /* of these, with an error */
};

/* Open or make path, cut off a result that was written in part.
 * fail FT_E_REQ_INVALID: another run has it, or it holds something else; FT_E_PROC_OS */
enum ft_code ctl_resume_open(struct ctl_resume *resume, const char *path, struct ft_err *err);
/* fail FT_E_PROC_OS: something did not arrive */
enum ft_code ctl_resume_close(struct ctl_resume *resume, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
