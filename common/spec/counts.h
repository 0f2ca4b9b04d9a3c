/* counts: the entries behind struct ft_counts (declared in transform.h), for the penalties.
 * Owns:    nothing.
 * Runs in: coordinator, draft_worker; loop thread only.
 * Never:   included outside common/spec. */
#ifndef FT_SPEC_COUNTS_H
#define FT_SPEC_COUNTS_H

#include "common/spec/transform.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_count {
    int32_t id;
    int32_t output; /* how often in the output */
    bool prompt;    /* in the prompt */
};

/* Every distinct id once, in order of first appearance. NULL counts have none. */
size_t ft_counts_size(const struct ft_counts *counts);
const struct ft_count *ft_counts_entries(const struct ft_counts *counts);

#ifdef __cplusplus
}
#endif
#endif
