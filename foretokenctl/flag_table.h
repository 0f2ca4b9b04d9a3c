/* flag_table (ctl): the rows of flags.def, for those that set a flag from something else than the
 * command line.
 * Owns:    nothing.
 * Runs in: foretokenctl.
 * Never:   included by a command. */
#ifndef CTL_FLAG_TABLE_H
#define CTL_FLAG_TABLE_H

#include "foretokenctl/flags.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ctl_flag_kind {
    CTL_FLAG_BOOL,
    CTL_FLAG_F32,
    CTL_FLAG_F64,
    CTL_FLAG_I32,
    CTL_FLAG_U32,
    CTL_FLAG_U64,
    CTL_FLAG_STR,
    CTL_FLAG_STRS,
    CTL_FLAG_IDS,
    CTL_FLAG_REALS,
    CTL_FLAG_BIASES
};

#define CTL_FLAG_NO_MARK SIZE_MAX

struct ctl_flag {
    const char *name;
    enum ctl_flag_kind kind;
    size_t offset; /* in struct ctl_options */
    size_t mark;   /* offset of the bool that says "given", or of the count; CTL_FLAG_NO_MARK */
    unsigned commands;
    const char *value, *help;
};

/* By its name in flags.def; NULL when there is none. */
const struct ctl_flag *ctl_flag_find(const char *name);
/* As --name text does: lists are appended to. */
enum ft_code ctl_flag_set(const struct ctl_flag *flag, struct ctl_options *opts, const char *text,
                          struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
