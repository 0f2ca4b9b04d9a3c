#include "coordinator/trace.h"

#include <stdlib.h>
#include <string.h>

#define MODULE "trace"

/* Requests of one round that are encoded at a time. */
#define SEQS_MAX FT_WIRE_TRACE_SEQS_MAX

enum ft_code co_trace_init(struct co_trace *trace, struct ft_err *err) {
    *trace = (struct co_trace){.rounds = calloc(CO_TRACE_ROUNDS, sizeof *trace->rounds),
                               .seqs = calloc(CO_TRACE_SEQS, sizeof *trace->seqs)};
    if (trace->rounds == NULL || trace->seqs == NULL) {
        co_trace_fini(trace);
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for %d rounds",
                          CO_TRACE_ROUNDS);
    }
    return FT_OK;
}

void co_trace_fini(struct co_trace *trace) {
    free(trace->rounds);
    free(trace->seqs);
    *trace = (struct co_trace){0};
}

static struct co_trace_round *nth(const struct co_trace *trace, uint64_t round) {
    return &trace->rounds[round % CO_TRACE_ROUNDS];
}

void co_trace_begin(struct co_trace *trace, int64_t now_ns) {
    *nth(trace, trace->n_rounds) =
        (struct co_trace_round){.at[FT_TRACE_BEGIN] = (uint64_t)now_ns, .first_seq = trace->n_seqs};
}

void co_trace_mark(struct co_trace *trace, enum ft_wire_trace_at at, int64_t now_ns) {
    nth(trace, trace->n_rounds)->at[at] = (uint64_t)now_ns;
}

void co_trace_reply(struct co_trace *trace, enum ft_wire_trace_at sent, int64_t now_ns,
                    uint64_t begin_ns, uint64_t compute_ns) {
    uint64_t *at = &nth(trace, trace->n_rounds)->at[sent];
    uint64_t now = (uint64_t)now_ns, away = now - at[0];
    compute_ns = compute_ns < away ? compute_ns : away;
    if (begin_ns < at[0] || begin_ns > now - compute_ns)
        begin_ns = at[0] + (away - compute_ns) / 2;
    at[1] = begin_ns;
    at[2] = begin_ns + compute_ns;
    at[3] = now;
}

void co_trace_request(struct co_trace *trace, const struct ft_wire_trace_seq *seq,
                      const char *request_id) {
    struct co_trace_round *round = nth(trace, trace->n_rounds);
    struct co_trace_seq *slot = &trace->seqs[trace->n_seqs % CO_TRACE_SEQS];
    slot->what = *seq;
    size_t len = strnlen(request_id, CO_TRACE_ID_MAX);
    while (len > 0 && ((unsigned char)request_id[len] & 0xc0) == 0x80)
        len--; /* not inside a character */
    memcpy(slot->id, request_id, len);
    slot->id[len] = 0;
    trace->n_seqs++;
    round->n_seqs++;
}

void co_trace_end(struct co_trace *trace, int64_t now_ns) {
    co_trace_mark(trace, FT_TRACE_END, now_ns);
    trace->n_rounds++;
}

void co_trace_written(struct co_trace *trace, int64_t begin_ns, int64_t end_ns) {
    if (trace->n_rounds == 0)
        return;
    struct co_trace_round *round = nth(trace, trace->n_rounds - 1);
    if (round->at[FT_TRACE_WRITE_BEGIN] != 0)
        return; /* an event between rounds: nothing of a round is written */
    round->at[FT_TRACE_WRITE_BEGIN] = (uint64_t)begin_ns;
    round->at[FT_TRACE_WRITE_END] = (uint64_t)end_ns;
}

static void encode_round(const struct co_trace *trace, uint64_t number, struct ft_buf *out) {
    static struct ft_wire_trace_seq seqs[SEQS_MAX]; /* large; one thread encodes */
    const struct co_trace_round *round = nth(trace, number);
    for (uint32_t i = 0; i < round->n_seqs; i++) {
        const struct co_trace_seq *seq = &trace->seqs[(round->first_seq + i) % CO_TRACE_SEQS];
        seqs[i] = seq->what;
        seqs[i].request_id = ft_str_c(seq->id);
    }
    struct ft_wire_trace_round wire = {.round = number, .seqs = seqs, .n_seqs = round->n_seqs};
    memcpy(wire.at, round->at, sizeof wire.at);
    ft_wire_encode_trace_round(&wire, out);
}

void co_trace_encode(const struct co_trace *trace, uint32_t max_rounds, struct ft_buf *out) {
    /* The slot behind the last round is that of the open one. */
    uint64_t n = trace->n_rounds < CO_TRACE_ROUNDS ? trace->n_rounds : CO_TRACE_ROUNDS - 1;
    if (max_rounds != 0 && max_rounds < n)
        n = max_rounds;
    ft_wire_encode_trace_head(trace->n_rounds, out);
    for (uint64_t number = trace->n_rounds - n; number < trace->n_rounds; number++)
        if (trace->n_seqs - nth(trace, number)->first_seq <= CO_TRACE_SEQS)
            encode_round(trace, number, out);
}
