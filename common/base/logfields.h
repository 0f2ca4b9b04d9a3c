/* logfields: a line of the log, taken apart for those that store fields.
 * Owns:    nothing; fields borrow from the line.
 * Runs in: every process, any thread.
 * Never:   allocates. */
#ifndef FT_BASE_LOGFIELDS_H
#define FT_BASE_LOGFIELDS_H

#include "common/base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_log_field {
    struct ft_str key, value; /* a quoted value is without its quotes */
};

/* `event key value key "a value" reason all of the rest`: the event (key "event"), then each pair.
 * The keys reason and text take what is left of the line. What is no pair ends the search.
 * Returns how many were found, at most n_max. */
size_t ft_log_fields(struct ft_str line, struct ft_log_field *fields, size_t n_max);

#ifdef __cplusplus
}
#endif
#endif
