/* kvlayout: how sequences lie in KV memory; a variation point, picked once at start.
 * Owns:    nothing; the layouts that there are.
 * Runs in: draft_worker, target_worker; at start.
 * Never:   changes what is computed: kernels read through a table of pages in every layout.
 *
 * KV memory is pages of some positions each. The pool takes and gives blocks, one or more whole
 * pages side by side, and a layout says how many:
 * paged    one. A sequence takes blocks as it grows, wherever they are free; full ones are shared.
 * slotted  as many as the longest sequence needs. A sequence is one block, a slot, and lies in one
 *          piece from its first token on; it never runs out of room, and nothing is shared. */
#ifndef FT_KV_KVLAYOUT_H
#define FT_KV_KVLAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ft_kvlayout {
    const char *name;
    bool shares_blocks; /* the prefix cache works: blocks are full before their sequence ends */
    /* Positions of a block, a multiple of page_tokens, where sequences have up to len_max. */
    int32_t (*block_tokens)(int32_t len_max, int32_t page_tokens);
};

/* The layout of that name, NULL when there is none. */
const struct ft_kvlayout *ft_kvlayout_find(const char *name);

#ifdef __cplusplus
}
#endif
#endif
