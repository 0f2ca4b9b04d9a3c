/* What a round costs, from the service's trace of it. */
#include "foretokenctl/bench.h"

void bench_row_fini(struct bench_row *row) {
    struct ft_buf *all[] = {&row->speeds,    &row->firsts,     &row->gaps,       &row->rounds,
                            &row->drafts_in, &row->targets_in, &row->draft_steps};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        ft_buf_fini(all[i]);
}

static void add_ms(struct ft_buf *to, uint64_t from_ns, uint64_t until_ns, double share) {
    double ms = until_ns > from_ns ? (double)(until_ns - from_ns) * 1e-6 * share : 0;
    ft_buf_add(to, &ms, sizeof ms);
}

/* The most tokens that the draft worker drafted for a sequence; -1 of a round that has prompts in
 * it, or in which somebody got nothing. */
static int32_t drafted_in(const struct ft_wire_trace_round *round) {
    int32_t most = 0;
    for (size_t i = 0; i < round->n_seqs; i++) {
        const struct ft_wire_trace_seq *seq = &round->seqs[i];
        if (seq->tokens != 1 || seq->committed == 0)
            return -1;
        most = (int32_t)seq->model_drafted > most ? (int32_t)seq->model_drafted : most;
    }
    return round->n_seqs > 0 ? most : -1;
}

void bench_take_rounds(struct bench_row *row, const struct ft_wire_trace *trace,
                       uint64_t first_round) {
    for (size_t i = 0; i + 1 < trace->n_rounds; i++) {
        const struct ft_wire_trace_round *round = &trace->rounds[i], *next = round + 1;
        int32_t drafted = drafted_in(round);
        /* Behind the last one of a request may come a pause. */
        if (round->round < first_round || drafted < 0 || drafted_in(next) < 0)
            continue;
        const uint64_t *at = round->at;
        add_ms(&row->rounds, at[FT_TRACE_BEGIN], next->at[FT_TRACE_BEGIN], 1);
        add_ms(&row->targets_in, at[FT_TRACE_VERIFY_BEGIN], at[FT_TRACE_VERIFY_END], 1);
        add_ms(&row->drafts_in, at[FT_TRACE_DRAFT_BEGIN], at[FT_TRACE_DRAFT_END], 1);
        if (drafted > 0)
            add_ms(&row->draft_steps, at[FT_TRACE_DRAFT_BEGIN], at[FT_TRACE_DRAFT_END],
                   1.0 / drafted);
    }
}
