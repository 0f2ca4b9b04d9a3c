/* table_model: language models whose logits depend on the last token alone, and the loop of rounds
 * over a pair of them: draft, decide, commit. Everything is the product's code but the forward
 * pass, so that the distribution of whole texts is known in closed form.
 *
 * Token ids are small; letters stand for them in strings: 'a' is 0. */
#ifndef FT_TEST_TABLE_MODEL_H
#define FT_TEST_TABLE_MODEL_H

#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/spec/rule.h"

/* ck_assert writes to a pipe even when it holds: too slow for what runs millions of times. */
#define table_require(cond) ((cond) ? (void)0 : ck_abort_msg("%s", #cond))

#define TABLE_VOCAB_MAX 32
#define TABLE_FLOOR (-40.0f)

struct table_model {
    int32_t n_vocab;
    float row[TABLE_VOCAB_MAX][TABLE_VOCAB_MAX]; /* [last token][next token] */
};

/* Rows as text: "a>b=20 c=1|*>d=2"; '*' stands for every row, what is not named has -40. */
static inline struct table_model table_model(int32_t n_vocab, const char *text) {
    struct table_model model = {.n_vocab = n_vocab};
    for (int32_t i = 0; i < TABLE_VOCAB_MAX; i++)
        for (int32_t j = 0; j < TABLE_VOCAB_MAX; j++)
            model.row[i][j] = TABLE_FLOOR;
    while (*text != 0) {
        char from = *text;
        ck_assert(text[1] == '>');
        text += 2;
        while (*text != '|' && *text != 0) {
            int32_t to = *text - 'a';
            ck_assert(to >= 0 && to < n_vocab && text[1] == '=');
            char *end;
            float logit = strtof(text + 2, &end);
            for (int32_t i = 0; i < n_vocab; i++)
                if (from == '*' || from == 'a' + i)
                    model.row[i][to] = logit;
            text = *end == ' ' ? end + 1 : end;
        }
        text += *text == '|';
    }
    return model;
}

enum table_drafter {
    TABLE_SAMPLES, /* draws from q and gives q rows */
    TABLE_ARGMAX,  /* proposes the draft's best token; q is one-hot */
    TABLE_CYCLES   /* proposes the ids 0, 1, 2, ... of the draft in turn; q is one-hot */
};

/* Random rows on a grid of a half, so that ties happen; the same for the same seed. */
static inline struct table_model table_random(uint64_t seed, int32_t n_vocab, double spread) {
    struct table_model model = {.n_vocab = n_vocab};
    for (uint64_t i = 0; i < TABLE_VOCAB_MAX; i++)
        for (uint64_t j = 0; j < (uint64_t)n_vocab; j++) {
            double u = ft_philox_uniform(seed, i * 100 + j, FT_PHILOX_PROPOSE, 1);
            model.row[i][j] = (float)(floor(u * spread * 2) / 2); /* ties happen */
        }
    return model;
}

/* Ways to draft that a distribution must not depend on. */
static const struct {
    enum table_drafter drafter;
    int32_t n_draft;
} table_ways[] = {
    {TABLE_SAMPLES, 1}, {TABLE_SAMPLES, 2}, {TABLE_SAMPLES, 4},
    {TABLE_ARGMAX, 2},  {TABLE_CYCLES, 4},
};
#define TABLE_N_WAYS (sizeof table_ways / sizeof table_ways[0])

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TABLE_N_SEEDS 2000 /* there, memory is what is tested */
#else
#define TABLE_N_SEEDS 20000
#endif

struct table_pair {
    const struct ft_rule *rule;
    const struct table_model *target, *draft;
    enum table_drafter drafter;
    int32_t n_draft; /* K */
    const int32_t *banned;
    size_t n_banned;
    int32_t min_tokens;                       /* banned ids are banned before so many tokens */
    const struct ft_sampling *draft_sampling; /* NULL: as the text's own; the seed is the text's */
    float lenience;                           /* 0: 0.5 */
    const float *rates;                       /* [n_draft] of `synthetic`; NULL: 0.7 each */
};

struct table_stats {
    int64_t rounds, drafted, accepted, first_accepted;
};

struct table_run {
    struct ft_transform *transform;
    struct ft_counts *counts;
    struct table_stats stats;
};

static inline void table_run_init(struct table_run *run) {
    memset(run, 0, sizeof *run);
    run->transform = ft_transform_create(TABLE_VOCAB_MAX);
    run->counts = ft_counts_create();
    ck_assert(run->transform != NULL && run->counts != NULL);
}

static inline void table_run_fini(struct table_run *run) {
    ft_transform_destroy(&run->transform);
    ft_counts_destroy(&run->counts);
}

/* Draft n tokens after last, as the draft worker does. */
static inline void table_draft(struct table_run *run, const struct table_pair *pair,
                               const struct ft_sampling *sampling, uint64_t position, int32_t last,
                               int32_t n, int32_t *draft, float (*q)[TABLE_VOCAB_MAX]) {
    const struct table_model *model = pair->draft;
    const bool argmax = pair->drafter == TABLE_ARGMAX || ft_sampling_is_greedy(sampling);
    for (int32_t i = 0; i < n; i++) {
        int32_t seen = last < model->n_vocab ? last : 0;
        struct ft_row_context context = {
            .sampling = sampling, .counts = run->counts, .drafted = draft, .n_drafted = (size_t)i};
        if (pair->drafter == TABLE_CYCLES) {
            last = draft[i] = (int32_t)((position + (uint64_t)i) % (uint64_t)model->n_vocab);
            continue;
        }
        if (argmax) {
            table_require(ft_transform_argmax(run->transform, model->row[seen], model->n_vocab,
                                              &context, &draft[i], NULL) == FT_OK);
        } else {
            table_require(ft_transform_row(run->transform, model->row[seen], model->n_vocab,
                                           &context, q[i], NULL) == FT_OK);
            draft[i] = ft_rule_propose(sampling, q[i], model->n_vocab, position + (uint64_t)i, i);
        }
        last = draft[i];
    }
}

/* Where a text stands. */
struct table_place {
    uint64_t position; /* of the next token */
    int32_t last;      /* the token before it */
    int32_t n_done;    /* tokens generated so far */
};

/* One round of k drafts. Counts are the caller's. */
static inline struct ft_verdict table_round(struct table_run *run, const struct table_pair *pair,
                                            const struct ft_sampling *like,
                                            struct table_place place, int32_t k) {
    static const float rates[FT_DRAFT_LEN_MAX] = {0.7f, 0.7f, 0.7f, 0.7f, 0.7f, 0.7f, 0.7f, 0.7f,
                                                  0.7f, 0.7f, 0.7f, 0.7f, 0.7f, 0.7f, 0.7f, 0.7f};
    struct ft_sampling own = *like, drafter = pair->draft_sampling ? *pair->draft_sampling : *like;
    const struct ft_sampling *sampling = &own;
    own.coupled = drafter.coupled = pair->rule->coupled;
    drafter.seed = own.seed;
    static float q[FT_DRAFT_LEN_MAX][TABLE_VOCAB_MAX];
    const float *p_rows[FT_DRAFT_LEN_MAX + 1], *q_rows[FT_DRAFT_LEN_MAX];
    int32_t draft[FT_DRAFT_LEN_MAX];
    table_draft(run, pair, &drafter, place.position, place.last, k, draft, q);
    for (int32_t i = 0; i <= k; i++) {
        int32_t before = i == 0 ? place.last : draft[i - 1];
        /* What follows a drafted token that the target does not know is not looked at. */
        p_rows[i] = before < pair->target->n_vocab ? pair->target->row[before] : NULL;
        if (i < k)
            q_rows[i] = q[i];
    }
    bool one_hot = pair->drafter != TABLE_SAMPLES || !ft_rule_reads_q(&drafter);
    int32_t n_banned_rows = pair->min_tokens - place.n_done;
    struct ft_round round = {.sampling = sampling,
                             .counts = run->counts,
                             .position = place.position,
                             .draft = draft,
                             .n_draft = k,
                             .p_rows = p_rows,
                             .n_vocab = pair->target->n_vocab,
                             .q_rows = one_hot ? NULL : q_rows,
                             .n_vocab_draft = pair->draft->n_vocab,
                             .banned = pair->banned,
                             .n_banned = pair->n_banned,
                             .n_banned_rows = n_banned_rows < 0 ? 0 : n_banned_rows,
                             .lenience = pair->lenience > 0 ? pair->lenience : 0.5f,
                             .synthetic_rates = pair->rates != NULL ? pair->rates : rates};
    struct ft_verdict verdict;
    struct ft_err err = {0};
    if (pair->rule->decide(run->transform, &round, &verdict, &err) != FT_OK)
        ck_abort_msg("%s", err.text);
    table_require(verdict.n_tokens >= 1);
    table_require(verdict.n_tokens <= k + 1);
    table_require(verdict.n_accepted == verdict.n_tokens - 1);
    table_require(verdict.residual == (verdict.n_accepted < k));
    for (int32_t i = 0; i < verdict.n_accepted; i++)
        table_require(verdict.tokens[i] == draft[i]);
    run->stats.rounds++;
    run->stats.drafted += k;
    run->stats.accepted += verdict.n_accepted;
    run->stats.first_accepted += verdict.n_accepted > 0;
    return verdict;
}

/* Generate n_out tokens after prompt. */
static inline void table_generate(struct table_run *run, const struct table_pair *pair,
                                  const struct ft_sampling *sampling, const int32_t *prompt,
                                  size_t n_prompt, int32_t n_out, int32_t *out) {
    ft_counts_reset(run->counts);
    table_require(ft_counts_add_prompt(run->counts, prompt, n_prompt));
    struct table_place place = {.position = n_prompt, .last = prompt[n_prompt - 1]};
    while (place.n_done < n_out) {
        int32_t room = n_out - place.n_done - 1;
        struct ft_verdict verdict =
            table_round(run, pair, sampling, place, room < pair->n_draft ? room : pair->n_draft);
        memcpy(out + place.n_done, verdict.tokens, (size_t)verdict.n_tokens * sizeof *out);
        table_require(ft_counts_add_output(run->counts, verdict.tokens, (size_t)verdict.n_tokens));
        place.n_done += verdict.n_tokens;
        place.position += (uint64_t)verdict.n_tokens;
        place.last = out[place.n_done - 1];
    }
}

/* The same with letters for ids; the result is NUL-terminated, n_out at most 255. */
static inline const char *table_text(struct table_run *run, const struct table_pair *pair,
                                     const struct ft_sampling *sampling, const char *prompt,
                                     int32_t n_out) {
    static char text[256];
    int32_t ids[256], prompt_ids[64];
    size_t n_prompt = strlen(prompt);
    table_require(n_out < 256 && n_prompt <= 64);
    for (size_t i = 0; i < n_prompt; i++)
        prompt_ids[i] = prompt[i] - 'a';
    table_generate(run, pair, sampling, prompt_ids, n_prompt, n_out, ids);
    for (int32_t i = 0; i < n_out; i++)
        text[i] = (char)('a' + ids[i]);
    text[n_out] = 0;
    return text;
}

#endif
