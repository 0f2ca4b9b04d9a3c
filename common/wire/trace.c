#include "common/wire/trace.h"

#include "common/wire/pb.h"
#include "foretoken/v1/admin.pb-c.h"

/* The moments of a message and their places: X(place, field). */
#define MOMENTS                                                                                    \
    X(FT_TRACE_BEGIN, begin)                                                                       \
    X(FT_TRACE_DRAFT_SENT, draft_sent)                                                             \
    X(FT_TRACE_DRAFT_BEGIN, draft_begin)                                                           \
    X(FT_TRACE_DRAFT_END, draft_end)                                                               \
    X(FT_TRACE_DRAFT_REPLY, draft_reply)                                                           \
    X(FT_TRACE_VERIFY_SENT, verify_sent)                                                           \
    X(FT_TRACE_VERIFY_BEGIN, verify_begin)                                                         \
    X(FT_TRACE_VERIFY_END, verify_end)                                                             \
    X(FT_TRACE_VERIFY_REPLY, verify_reply)                                                         \
    X(FT_TRACE_END, end)                                                                           \
    X(FT_TRACE_WRITE_BEGIN, write_begin)                                                           \
    X(FT_TRACE_WRITE_END, write_end)

void ft_wire_encode_trace_request(const struct ft_wire_trace_request *in, struct ft_buf *out) {
    Foretoken__V1__TraceRequest m = FORETOKEN__V1__TRACE_REQUEST__INIT;
    m.max_rounds = in->max_rounds;
    ft_pb_pack(&m.base, out);
}

enum ft_code ft_wire_decode_trace_request(struct ft_str in, struct ft_arena *arena,
                                          struct ft_wire_trace_request *out, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__v1__trace_request__descriptor, in, arena, &raw, err);
    if (code == FT_OK)
        out->max_rounds = ((const Foretoken__V1__TraceRequest *)raw)->max_rounds;
    return code;
}

void ft_wire_encode_trace_head(uint64_t rounds_total, struct ft_buf *out) {
    Foretoken__V1__TraceResponse m = FORETOKEN__V1__TRACE_RESPONSE__INIT;
    m.rounds_total = rounds_total;
    ft_pb_pack(&m.base, out);
}

void ft_wire_encode_trace_round(const struct ft_wire_trace_round *in, struct ft_buf *out) {
    Foretoken__V1__TraceRound m = FORETOKEN__V1__TRACE_ROUND__INIT;
    struct ft_buf part;
    ft_buf_init(&part, 0);
    m.round = in->round;
#define X(place, field) m.field = in->at[place];
    MOMENTS
#undef X
    ft_pb_pack(&m.base, &part);
    for (size_t i = 0; i < in->n_seqs; i++) {
        const struct ft_wire_trace_seq *seq = &in->seqs[i];
        Foretoken__V1__TraceSequence s = FORETOKEN__V1__TRACE_SEQUENCE__INIT;
        s.seq_id = seq->seq_id;
        s.request_id = FT_PB_BYTES(seq->request_id);
        s.tokens = seq->tokens;
        s.model_drafted = seq->model_drafted;
        s.drafted = seq->drafted;
        s.accepted = seq->accepted;
        s.committed = seq->committed;
        s.accept_begin = seq->accept_begin;
        s.accept_end = seq->accept_end;
        ft_pb_pack_message(&foretoken__v1__trace_round__descriptor, "sequences", &s.base, &part);
    }
    ft_pb_pack_buf(&foretoken__v1__trace_response__descriptor, "rounds", &part, out);
    ft_buf_fini(&part);
}

static enum ft_code decode_round(const Foretoken__V1__TraceRound *m, struct ft_arena *arena,
                                 struct ft_wire_trace_round *out, struct ft_err *err) {
    enum ft_code code =
        ft_pb_check_count("TraceRound.sequences", m->n_sequences, FT_WIRE_TRACE_SEQS_MAX, err);
    if (code != FT_OK)
        return code;
    struct ft_wire_trace_seq *seqs = ft_arena_calloc(arena, m->n_sequences, sizeof *seqs);
    if (seqs == NULL)
        return ft_pb_arena_full("TraceResponse", err);
    for (size_t i = 0; i < m->n_sequences; i++) {
        const Foretoken__V1__TraceSequence *s = m->sequences[i];
        seqs[i] = (struct ft_wire_trace_seq){.seq_id = s->seq_id,
                                             .request_id = FT_PB_STR(s->request_id),
                                             .tokens = s->tokens,
                                             .model_drafted = s->model_drafted,
                                             .drafted = s->drafted,
                                             .accepted = s->accepted,
                                             .committed = s->committed,
                                             .accept_begin = s->accept_begin,
                                             .accept_end = s->accept_end};
    }
    *out = (struct ft_wire_trace_round){.round = m->round, .seqs = seqs, .n_seqs = m->n_sequences};
#define X(place, field) out->at[place] = m->field;
    MOMENTS
#undef X
    return FT_OK;
}

enum ft_code ft_wire_decode_trace(struct ft_str in, struct ft_arena *arena,
                                  struct ft_wire_trace *out, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__v1__trace_response__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__V1__TraceResponse *m = raw;
    code = ft_pb_check_count("TraceResponse.rounds", m->n_rounds, FT_WIRE_TRACE_ROUNDS_MAX, err);
    if (code != FT_OK)
        return code;
    struct ft_wire_trace_round *rounds = ft_arena_calloc(arena, m->n_rounds, sizeof *rounds);
    if (rounds == NULL)
        return ft_pb_arena_full("TraceResponse", err);
    for (size_t i = 0; i < m->n_rounds; i++) {
        code = decode_round(m->rounds[i], arena, &rounds[i], err);
        if (code != FT_OK)
            return code;
    }
    *out = (struct ft_wire_trace){
        .rounds = rounds, .n_rounds = m->n_rounds, .rounds_total = m->rounds_total};
    return FT_OK;
}
