/* bench (ctl): speculation measured on a running service, and what theory says of it.
 * Owns:    rows and their samples, from ctl_bench_run's start to its end.
 * Runs in: foretokenctl; one thread.
 * Never:   compares runs of different times: all rows take turns on each prompt. */
#ifndef CTL_BENCH_H
#define CTL_BENCH_H

#include "common/base/buf.h"
#include "common/base/sampling.h"
#include "common/wire/admin.h"
#include "common/wire/trace.h"
#include "foretokenctl/session.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BENCH_ROWS_MAX = 64, BENCH_TOGETHER_MAX = 64, BENCH_PROMPTS_MAX = 256 };

struct bench_row { /* one way to decode at one concurrency */
    char label[40];
    int32_t together; /* requests at once */
    bool speculates;
    int32_t k; /* tokens drafted; -1: as the service chooses */
    struct ft_str drafter;
    size_t base; /* index of the row that decodes plainly as many at once */
    /* measured */
    struct ft_buf speeds; /* double: tokens/s of each sample, in the order of the base's */
    struct ft_buf firsts; /* double: seconds to the first token of each request */
    struct ft_buf gaps;   /* double: seconds between tokens; those of one message share its gap */
    uint64_t tokens;      /* after the first of each request */
    uint64_t drafts, drafted, accepted, steps;
    uint64_t drafted_at[FT_DRAFT_LEN_MAX], accepted_at[FT_DRAFT_LEN_MAX];
    /* double, ms, of each round in which nothing but decoding was done: from its begin to the
     * next one's; inside the workers; and of the draft worker's, a drafted token's share */
    struct ft_buf rounds, drafts_in, targets_in, draft_steps;
    bool lossy;
};

struct bench_summary {         /* of one row */
    double speed;              /* median tokens/s */
    double speedup, low, high; /* mean ratio to the base and its 95 % interval */
    double alpha, c, length;   /* length: tokens of a round that drafts, bonus included */
    double predicted, theorem; /* with measured costs of all phases; theorem 3.8 alone */
    double first_p50, first_p99, gap_p50, gap_p90, gap_p99;
    double draft_ms, target_ms, host_ms, round_ms; /* of a round: medians, host what they leave */
};

struct bench {
    const struct ctl_options *opts;
    struct ctl_session *session;
    struct bench_row rows[BENCH_ROWS_MAX];
    size_t n_rows;
    struct ft_str prompts[BENCH_PROMPTS_MAX];
    size_t n_prompts;
    struct ft_buf requests; /* JSON objects, one of each request, commas between */
    struct ft_str model;    /* name of the target */
};

/* One sample of row: its requests at once, prompts from first_prompt on. Exit status. */
int bench_sample(struct bench *bench, struct bench_row *row, size_t first_prompt);

void bench_row_fini(struct bench_row *row); /* a row begins as zeros */
/* Times of the rounds from first_round on. */
void bench_take_rounds(struct bench_row *row, const struct ft_wire_trace *trace,
                       uint64_t first_round);

struct bench_summary bench_summarize(const struct bench *bench, const struct bench_row *row);
void bench_table(const struct bench *bench, struct ft_buf *out);
void bench_json(const struct bench *bench, struct ft_buf *out);
/* A page that needs nothing beside itself. */
void bench_page(const struct bench *bench, struct ft_buf *out);

#ifdef __cplusplus
}
#endif
#endif
