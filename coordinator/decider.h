/* decider: rows that lie on a GPU: decided there for a whole step, or fetched for what is decided
 * here.
 * Owns:    the GPU as this process uses it, and rows that were fetched; from open to close.
 * Runs in: coordinator; loop thread only.
 * Never:   is needed: without it rows come through shared memory. */
#ifndef CO_DECIDER_H
#define CO_DECIDER_H

#include "common/ipc/region.h"
#include "common/spec/chooser.h"

#ifdef __cplusplus
extern "C" {
#endif

struct co_decider {
    struct ft_device *device; /* NULL: there is none */
    struct ft_chooser *chooser;
    float *rows; /* pinned [CO_DECIDER_ROWS, row_stride] */
    int64_t row_stride;
    bool tried;        /* one look for a GPU is enough */
    uint64_t n_asked;  /* rounds that were decided here after all */
    uint64_t n_rounds; /* decided there */
};

/* Of one request: its target rows, and those of q. */
#define CO_DECIDER_ROWS (2 * FT_DRAFT_LEN_MAX + 1)

/* Find the GPU with this uuid and take memory for steps of n_rows; done once. No GPU is no error:
 * the log says what it is missed for. mode is the parameter accept_device: "auto" or "cpu". */
void co_decider_open(struct co_decider *decider, const char *mode, const char *uuid, int32_t n_rows,
                     int32_t n_vocab);
void co_decider_close(struct co_decider *decider);

/* A row of a region as the host reads it: itself, or fetched into place slot, where it stays until
 * the next fetch into that place. NULL: outside the region, or the GPU failed. */
const float *co_decider_read(struct co_decider *decider, const struct ft_region *region,
                             const float *row, int32_t slot);

#ifdef __cplusplus
}
#endif
#endif
