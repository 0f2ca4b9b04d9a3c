/* trace (wire): Trace of foretoken.v1.Admin as plain structs.
 * Owns:    nothing; decoded messages live in the arena that was passed in.
 * Runs in: coordinator, foretokenctl.
 * Never:   lets a protobuf-c type out. */
#ifndef FT_WIRE_TRACE_H
#define FT_WIRE_TRACE_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FT_WIRE_TRACE_ROUNDS_MAX 65536
#define FT_WIRE_TRACE_SEQS_MAX 4096 /* of one round */

/* Moments of a round, in their order within it; the last two lie in the next round. */
enum ft_wire_trace_at {
    FT_TRACE_BEGIN,
    FT_TRACE_DRAFT_SENT,
    FT_TRACE_DRAFT_BEGIN,
    FT_TRACE_DRAFT_END,
    FT_TRACE_DRAFT_REPLY,
    FT_TRACE_VERIFY_SENT,
    FT_TRACE_VERIFY_BEGIN,
    FT_TRACE_VERIFY_END,
    FT_TRACE_VERIFY_REPLY,
    FT_TRACE_END,
    FT_TRACE_WRITE_BEGIN,
    FT_TRACE_WRITE_END,
    FT_TRACE_MOMENTS
};

struct ft_wire_trace_seq { /* TraceSequence */
    uint64_t seq_id;
    struct ft_str request_id;
    uint32_t tokens, model_drafted, drafted, accepted, committed;
    uint64_t accept_begin, accept_end;
};

struct ft_wire_trace_round { /* TraceRound */
    uint64_t round;
    uint64_t at[FT_TRACE_MOMENTS];
    const struct ft_wire_trace_seq *seqs;
    size_t n_seqs;
};

struct ft_wire_trace { /* TraceResponse */
    const struct ft_wire_trace_round *rounds;
    size_t n_rounds;
    uint64_t rounds_total;
};

struct ft_wire_trace_request { /* TraceRequest */
    uint32_t max_rounds;
};

/* Encoders append; check out->failed once. A trace is its head and then its rounds one by one. */
void ft_wire_encode_trace_request(const struct ft_wire_trace_request *in, struct ft_buf *out);
void ft_wire_encode_trace_head(uint64_t rounds_total, struct ft_buf *out);
void ft_wire_encode_trace_round(const struct ft_wire_trace_round *in, struct ft_buf *out);

enum ft_code ft_wire_decode_trace_request(struct ft_str in, struct ft_arena *arena,
                                          struct ft_wire_trace_request *out, struct ft_err *err);
/* fail FT_E_REQ_INVALID: no such message; more rounds or sequences than the limits */
enum ft_code ft_wire_decode_trace(struct ft_str in, struct ft_arena *arena,
                                  struct ft_wire_trace *out, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
