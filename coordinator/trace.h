/* trace: when the phases of the latest rounds began and ended, and what each request got of them.
 * Owns:    two rings of fixed size, from init to fini.
 * Runs in: coordinator; loop thread only.
 * Never:   allocates after init; reads a clock: it is told the time. */
#ifndef CO_TRACE_H
#define CO_TRACE_H

#include <stdbool.h>

#include "common/wire/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A few seconds of decoding, as the medians of stats.h; half a megabyte with CO_TRACE_SEQS. */
#define CO_TRACE_ROUNDS 1024
#define CO_TRACE_SEQS                                                                              \
    4096 /* requests in all rounds together; a larger batch leaves fewer rounds                    \
          */
#define CO_TRACE_ID_MAX 39

struct co_trace_round {
    uint64_t at[FT_TRACE_MOMENTS];
    uint64_t first_seq; /* counted since start, as n_seqs of struct co_trace */
    uint32_t n_seqs;
};

struct co_trace_seq {
    struct ft_wire_trace_seq what; /* request_id lies in id */
    char id[CO_TRACE_ID_MAX + 1];
};

struct co_trace {
    struct co_trace_round *rounds; /* [CO_TRACE_ROUNDS] */
    struct co_trace_seq *seqs;     /* [CO_TRACE_SEQS] */
    uint64_t n_rounds, n_seqs;     /* since start; the round that is open comes after n_rounds */
};

/* fail FT_E_PROC_MEMORY */
enum ft_code co_trace_init(struct co_trace *trace, struct ft_err *err);
void co_trace_fini(struct co_trace *trace);

/* Open a round; one that is open is forgotten: it came to no end. */
void co_trace_begin(struct co_trace *trace, int64_t now_ns);
/* A moment of the open round. */
void co_trace_mark(struct co_trace *trace, enum ft_wire_trace_at at, int64_t now_ns);
/* The reply to a step: marks when the worker computed, and its reply. A worker whose clock says
 * what cannot be is taken to have computed in the middle of the time that the step was away.
 * in  sent  FT_TRACE_DRAFT_SENT or FT_TRACE_VERIFY_SENT, marked before */
void co_trace_reply(struct co_trace *trace, enum ft_wire_trace_at sent, int64_t now_ns,
                    uint64_t begin_ns, uint64_t compute_ns);
/* A request of the open round; request_id is copied. */
void co_trace_request(struct co_trace *trace, const struct ft_wire_trace_seq *seq,
                      const char *request_id);
void co_trace_end(struct co_trace *trace, int64_t now_ns);
/* What clients were sent of the round that ended last. */
void co_trace_written(struct co_trace *trace, int64_t begin_ns, int64_t end_ns);

/* The latest max_rounds (0: all) whose requests are all still there, as TraceResponse. */
void co_trace_encode(const struct co_trace *trace, uint32_t max_rounds, struct ft_buf *out);

#ifdef __cplusplus
}
#endif
#endif
