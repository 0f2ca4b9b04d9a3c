#include "coordinator/drafting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "coordinator/app.h"

#define MODULE "drafting"

/* What unigram and bigram learn from: enough for their tables to settle, a second at start. */
#define TEXT_BYTES_MAX ((size_t)16 << 20)

/* Fewer tokens say nothing of what reading one costs. */
#define CATCH_UP_MIN 16

static int32_t min32(int32_t a, int32_t b) {
    return a < b ? a : b;
}

/* ---- start ---------------------------------------------------------------------------------- */

static enum ft_code blame_text(struct ft_err *err) {
    char why[FT_ERR_TEXT_MAX];
    snprintf(why, sizeof why, "%.150s", err->text);
    return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "drafter_text: %s", why);
}

static enum ft_code read_text(const struct co_config *config, struct ft_buf *text,
                              struct ft_err *err) {
    if (ft_file_read(config->drafter_text, TEXT_BYTES_MAX, text, err) != FT_OK)
        return blame_text(err);
    return FT_OK;
}

static enum ft_code encode_text(const struct co_app *app, struct ft_ids *ids, struct ft_err *err) {
    struct ft_encode_opts opts = {.tokens_max = TEXT_BYTES_MAX};
    struct ft_buf text;
    if (app->config.drafter_text[0] == 0)
        return FT_OK;
    ft_buf_init(&text, 0);
    enum ft_code code = read_text(&app->config, &text, err);
    if (code == FT_OK &&
        ft_tokenizer_encode(app->pair.tokenizer, ft_buf_str(&text), &opts, ids, err) != FT_OK)
        code = blame_text(err);
    ft_buf_fini(&text);
    return code;
}

/* "ngram,model" into opts->chain; the names are cut out of list. */
static enum ft_code split_chain(char *list, struct co_drafter_opts *opts, struct ft_err *err) {
    size_t n = 0;
    char *rest = NULL;
    for (char *name = strtok_r(list, ", ", &rest); name != NULL;
         name = strtok_r(NULL, ", ", &rest)) {
        if (n == CO_CHAIN_MAX)
            return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                              "drafter_chain has more than %d drafters", CO_CHAIN_MAX);
        opts->chain[n++] = name;
    }
    return FT_OK;
}

static struct co_drafter_opts opts_of(const struct co_config *config) {
    return (struct co_drafter_opts){
        .ngram_window = config->ngram_window,
        .ngram_entries = config->ngram_table_entries,
        .lookup_min = config->prompt_lookup_min,
        .lookup_max = config->prompt_lookup_max,
        .lookup_input = config->prompt_lookup_input,
        .chain_min_match = config->drafter_min_match,
    };
}

static enum ft_code try_open(const char *name, const struct co_drafter_opts *opts,
                             struct ft_err *err) {
    const struct co_drafter *drafter = co_drafter_find(name);
    void *shared = NULL;
    FT_ASSERT(drafter != NULL); /* the parameter's choices are the drafters that exist */
    enum ft_code code = drafter->open(&shared, opts, err);
    if (code == FT_OK)
        drafter->close(&shared);
    return code;
}

/* A text of one token stands for the real one. The names of a chain must be right also where the
 * service drafts otherwise: requests may ask for it. */
enum ft_code co_drafting_check(const struct co_config *config, struct ft_err *err) {
    static const int32_t token = 0;
    struct co_drafter_opts opts = opts_of(config);
    char chain[FT_PARAM_STR_MAX];
    memcpy(chain, config->drafter_chain, sizeof chain);
    opts.n_vocab = 1;
    opts.text = &token;
    opts.n_text = 1;
    enum ft_code code = split_chain(chain, &opts, err);
    if (code == FT_OK)
        code = try_open("chain", &opts, err);
    opts.n_text = config->drafter_text[0] != 0;
    return code == FT_OK ? try_open(config->drafter, &opts, err) : code;
}

enum ft_code co_drafting_check_text(const struct co_config *config, struct ft_err *err) {
    struct ft_buf text;
    ft_buf_init(&text, 0);
    enum ft_code code = config->drafter_text[0] != 0 ? read_text(config, &text, err) : FT_OK;
    ft_buf_fini(&text);
    return code;
}

/* Those that need a text are there when there is one, or when the service is to use them. */
static enum ft_code open_drafters(struct co_app *app, const struct co_drafter_opts *opts,
                                  struct ft_err *err) {
    struct co_drafting *drafting = &app->drafting;
    const struct co_drafter *drafter;
    for (size_t i = 0; (drafter = co_drafter_at(i)) != NULL; i++) {
        FT_ASSERT(i < CO_LENGTH_SOURCES);
        struct ft_err why = {0};
        enum ft_code code = drafter->open(&drafting->shared[i], opts, &why);
        drafting->is_open[i] = code == FT_OK;
        if (code == FT_OK || (code == FT_E_PROC_CONFIG && drafter != drafting->drafter))
            continue;
        *err = why;
        return code;
    }
    return FT_OK;
}

enum ft_code co_drafting_init(struct co_app *app, struct ft_err *err) {
    struct co_drafting *drafting = &app->drafting;
    const struct co_config *config = &app->config;
    size_t n = (size_t)app->pair.max_seqs;
    char chain[FT_PARAM_STR_MAX];
    struct ft_ids text = {0};
    memcpy(chain, config->drafter_chain, sizeof chain);
    drafting->policy = config->draft_length;
    drafting->drafter = co_drafter_find(config->drafter);
    FT_ASSERT(drafting->drafter != NULL); /* the parameter's choices are the drafters that exist */
    co_length_init(&drafting->length);
    drafting->n_row = app->pair.vocab_size;
    drafting->rows = calloc((size_t)drafting->n_row * FT_DRAFT_LEN_MAX, sizeof *drafting->rows);
    drafting->items = calloc(n, sizeof *drafting->items);
    drafting->item_of = calloc(n, sizeof *drafting->item_of);
    if (drafting->rows == NULL || drafting->items == NULL || drafting->item_of == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for %zu requests", n);
    struct co_drafter_opts opts = opts_of(config);
    opts.n_vocab = app->pair.tokenizer_size;
    enum ft_code code = split_chain(chain, &opts, err);
    if (code == FT_OK)
        code = encode_text(app, &text, err);
    opts.text = text.ptr;
    opts.n_text = text.len;
    if (code == FT_OK)
        code = open_drafters(app, &opts, err);
    ft_ids_fini(&text);
    return code;
}

void co_drafting_fini(struct co_app *app) {
    struct co_drafting *drafting = &app->drafting;
    for (size_t i = 0; i < CO_LENGTH_SOURCES; i++)
        if (drafting->is_open[i])
            co_drafter_at(i)->close(&drafting->shared[i]);
    free(drafting->rows);
    free(drafting->items);
    free(drafting->item_of);
    memset(drafting, 0, sizeof *drafting);
}

/* ---- requests ------------------------------------------------------------------------------- */

enum ft_code co_drafting_find(const struct co_app *app, struct ft_str name,
                              const struct co_drafter **out, struct ft_err *err) {
    const struct co_drafter *drafter;
    for (size_t i = 0; (drafter = co_drafter_at(i)) != NULL; i++) {
        if (!ft_str_eq(name, ft_str_c(drafter->name)))
            continue;
        if (!app->drafting.is_open[i])
            return ft_err_set(err, FT_E_REQ_INVALID, "request",
                              "drafter is '%s': this service has no drafter_text to learn it from",
                              drafter->name);
        *out = drafter;
        return FT_OK;
    }
    char shown[41];
    size_t len = name.len < sizeof shown - 1 ? name.len : sizeof shown - 1;
    for (size_t i = 0; i < len; i++)
        shown[i] = name.ptr[i] >= 0x20 && name.ptr[i] <= 0x7e ? name.ptr[i] : '?';
    shown[len] = 0;
    return ft_err_set(err, FT_E_REQ_INVALID, "request",
                      "drafter is '%s': must be model, ngram, lookup, bigram, unigram, random or "
                      "chain",
                      shown);
}

void co_drafting_end(struct co_request *r) {
    if (r->drafter_began)
        r->drafter->end(&r->drafter_state);
    r->drafter_began = false;
}

static bool is_model(const struct co_request *r) {
    return r->drafter == co_drafter_at(0);
}

static bool may_ask_model(const struct co_request *r) {
    return is_model(r) || r->drafter == co_drafter_find("chain");
}

void co_drafting_follow(struct co_request *r) {
    const struct co_drafting *drafting = &r->app->drafting;
    if (!r->k_own)
        r->k = drafting->policy.k_max;
    r->speculate = !r->spec_off && r->k > 0;
    if (!r->drafter_own && r->drafter != drafting->drafter) {
        co_drafting_end(r);
        r->drafter = drafting->drafter;
        r->draft_refused = false; /* if it is again, its reason is said anew */
        r->fallback_reason = NULL;
    }
    if (!r->speculate || !may_ask_model(r))
        co_request_drop_draft(r); /* others can use its blocks */
}

static bool begin_drafter(struct co_request *r) {
    if (r->drafter_began)
        return true;
    struct ft_err err = {0};
    const void *shared = r->app->drafting.shared[co_drafter_index(r->drafter)];
    if (r->drafter->begin(&r->drafter_state, shared, r->n_prompt + r->max_new, &err) != FT_OK) {
        ft_warn("drafter-failed request %s reason %s", r->id, err.text);
        r->speculate = false;
        r->fallback_reason = "no memory for the drafter";
        return false;
    }
    r->drafter_began = true;
    return true;
}

/* ---- proposals ------------------------------------------------------------------------------ */

/* A target may have ids that the draft's embedding lacks. */
static bool draft_can_read(const struct co_request *r) {
    for (int32_t i = r->draft_len; i < r->n; i++)
        if (r->tokens[i] >= r->app->pair.draft_vocab_size)
            return false;
    return true;
}

/* Why r decodes plainly, when nothing but the draft worker drafts for it. */
static int32_t no_model(struct co_request *r, const char *why) {
    if (is_model(r))
        r->fallback_reason = why;
    return 0;
}

/* How many tokens the draft worker can draft for r now, at most k. */
static int32_t model_room(struct co_request *r, int32_t k) {
    const struct co_app *app = r->app;
    if (r->draft_refused)
        return 0; /* its reason was said */
    if (app->draft == NULL)
        return no_model(r, "no draft worker configured");
    if (!co_peer_up(app->draft))
        return no_model(r, "draft worker down");
    k = min32(k, app->pair.draft_max_len - r->n);
    if (k <= 0) {
        r->draft_refused = true; /* the text only grows */
        return no_model(r, "draft context full");
    }
    if (!draft_can_read(r)) {
        r->draft_refused = true;
        return no_model(r, "a token outside the draft's vocabulary");
    }
    return k;
}

int32_t co_drafting_room(struct co_request *r) {
    const struct co_length_policy *policy = &r->app->drafting.policy;
    if (!r->app->config.speculation) {
        if (r->speculate)
            r->fallback_reason = "speculation is off";
        return 0;
    }
    int32_t k = r->k_own ? r->k : co_length_policy_k(policy, r->app->n_running);
    k = min32(k, r->max_new - (r->n - r->n_prompt) - 1);
    if (!r->speculate || k <= 0)
        return 0;
    return is_model(r) ? model_room(r, k) : k;
}

static void context_of(const struct co_request *r, int32_t k_max, struct co_draft_context *out) {
    const struct co_app *app = r->app;
    *out = (struct co_draft_context){
        .tokens = r->tokens,
        .n = r->n,
        .n_prompt = r->n_prompt,
        .n_vocab = app->pair.tokenizer_size,
        .k_max = k_max,
        .probabilistic = app->config.drafter_counts_as_q && !ft_sampling_is_greedy(&r->sampling),
        .seed = r->sampling.seed,
    };
}

/* The proposal of entry i, before its length is chosen. True when there is one. */
static bool propose(struct co_app *app, int32_t i, struct co_length_item *item) {
    struct co_round_entry *entry = &app->round.entries[i];
    struct co_request *r = entry->request;
    memset(&entry->proposal, 0, sizeof entry->proposal);
    if (entry->k_room <= 0 || r->n - r->target_len != 1 || !begin_drafter(r))
        return false;
    int32_t k_model = model_room(r, entry->k_room);
    struct co_draft_context context;
    context_of(r, entry->k_room, &context);
    context.model = k_model > 0;
    r->drafter->propose(app->drafting.shared[co_drafter_index(r->drafter)], r->drafter_state,
                        &context, &entry->proposal);
    bool asks = entry->proposal.ask_model;
    if (!asks && entry->proposal.n == 0)
        return false;
    *item = (struct co_length_item){
        .request = &r->length,
        .source = co_drafter_index(co_drafter_find(entry->proposal.source)),
        .class_at = co_length_class(r->sampling.temperature),
        .model = asks,
        .is_free = !r->k_own && app->drafting.policy.mode == CO_LENGTH_AUTO,
        .k_max = asks ? k_model : entry->proposal.n,
        .reach = 1,
        .behind = asks ? r->n - r->draft_len - 1 : 0,
    };
    return true;
}

/* Put the k first tokens of a proposal that is no model's into the round. */
static void take_own(struct co_app *app, int32_t i, int32_t k) {
    struct co_round_entry *entry = &app->round.entries[i];
    struct co_plan_item *plan = &app->round.plans[i];
    struct co_proposal *proposal = &entry->proposal;
    proposal->n = min32(proposal->n, k);
    for (int32_t j = plan->n_drafted; j < proposal->n; j++) {
        entry->draft[j] = proposal->tokens[j];
        entry->has_q = entry->has_q || proposal->q[j].n_ids > 0;
    }
    plan->n_drafted = proposal->n;
}

void co_drafting_propose(struct co_app *app) {
    struct co_drafting *drafting = &app->drafting;
    struct co_round *round = &app->round;
    int32_t n_items = 0;
    drafting->steady = true;
    for (int32_t i = 0; i < round->n_entries; i++) {
        const struct co_request *r = round->entries[i].request;
        round->entries[i].n_vocab_q = app->pair.vocab_size;
        round->entries[i].k_room = round->plans[i].k_want;
        round->plans[i].k_want = 0;
        struct co_length_item *item = &drafting->items[n_items];
        if (propose(app, i, item)) {
            drafting->item_of[n_items++] = i;
        } else if (r->n - r->target_len == 1) { /* its row counts all the same */
            *item =
                (struct co_length_item){.request = &round->entries[i].request->length, .reach = 1};
            drafting->item_of[n_items++] = i;
        } else {
            drafting->steady = false;
        }
    }
    co_length_choose(&drafting->length, drafting->items, n_items);
    for (int32_t j = 0; j < n_items; j++) {
        const struct co_length_item *item = &drafting->items[j];
        int32_t i = drafting->item_of[j];
        if (item->model)
            round->plans[i].k_want = item->k;
        else if (item->k_max > 0)
            take_own(app, i, item->k);
    }
}

/* The draft worker wrote its tokens into entry->draft. What comes behind them costs rows alone; it
 * is as long as pays off, or with a fixed K as long as that. */
void co_drafting_extend(struct co_app *app, int32_t i) {
    struct co_round_entry *entry = &app->round.entries[i];
    struct co_plan_item *plan = &app->round.plans[i];
    struct co_proposal *proposal = &entry->proposal;
    struct co_request *r = entry->request;
    int32_t n_model = plan->n_drafted, k_max = entry->k_room;
    if (plan->draft_tokens > 2)
        app->drafting.steady = false;
    if (n_model <= 0)
        return;
    entry->n_vocab_q = app->pair.draft_vocab_size;
    proposal->n = proposal->n_model = n_model;
    memcpy(proposal->tokens, entry->draft, (size_t)n_model * sizeof proposal->tokens[0]);
    struct co_draft_context context;
    context_of(r, k_max, &context);
    bool any_q = plan->sampled || context.probabilistic;
    if (n_model >= k_max || (any_q && app->pair.draft_vocab_size > app->drafting.n_row))
        return;
    context.n_vocab = min32(context.n_vocab, app->pair.draft_vocab_size);
    r->drafter->extend(app->drafting.shared[co_drafter_index(r->drafter)], r->drafter_state,
                       &context, proposal);
    if (proposal->n <= n_model)
        return;
    struct co_length *length = &app->drafting.length;
    struct co_length_item item = {
        .request = &r->length,
        .source = co_drafter_index(co_drafter_find(proposal->source)),
        .class_at = co_length_class(r->sampling.temperature),
        .k_max = proposal->n - n_model,
        .n_before = n_model,
        .reach = 1,
    };
    int32_t k = item.k_max;
    if (!r->k_own && app->drafting.policy.mode == CO_LENGTH_AUTO) {
        size_t model = co_drafter_index(co_drafter_find("model"));
        for (int32_t j = 0; j < n_model; j++)
            item.reach *= (float)co_length_rate(length, &r->length, model, item.class_at, j);
        k = co_length_extend(length, &item, app->round.n_entries);
    }
    take_own(app, i, n_model + k);
}

void co_drafting_lost(struct co_app *app) {
    struct co_round *round = &app->round;
    for (int32_t i = 0; i < round->n_entries; i++) {
        struct co_round_entry *entry = &round->entries[i];
        if (!entry->proposal.ask_model)
            continue;
        /* Greedy drafts need no q. */
        entry->lost = entry->lost || (entry->has_q && round->plans[i].sampled);
        round->plans[i].n_drafted = 0;
    }
}

/* ---- decisions ------------------------------------------------------------------------------ */

/* The first token whose q row is made here: the model left rows of its own, unless it was greedy.
 */
static int32_t first_own_row(const struct co_app *app, int32_t i) {
    return app->round.plans[i].sampled ? app->round.entries[i].proposal.n_model : 0;
}

void co_drafting_rows(struct co_app *app, int32_t i) {
    struct co_round_entry *entry = &app->round.entries[i];
    const struct co_proposal *proposal = &entry->proposal;
    if (!entry->has_q)
        return;
    for (int32_t j = first_own_row(app, i); j < proposal->n; j++) {
        float *row = app->drafting.rows + (size_t)j * (size_t)app->drafting.n_row;
        co_proposal_row(proposal, j, row);
        entry->q_rows[j] = row;
    }
}

void co_drafting_rows_done(struct co_app *app, int32_t i) {
    struct co_round_entry *entry = &app->round.entries[i];
    const struct co_proposal *proposal = &entry->proposal;
    if (!entry->has_q)
        return;
    for (int32_t j = first_own_row(app, i); j < proposal->n; j++)
        co_proposal_row_clear(proposal, j,
                              app->drafting.rows + (size_t)j * (size_t)app->drafting.n_row);
}

/* Tokens of one source in a round: n_draft of them from position at on. */
struct decided {
    const char *source;
    int32_t at, n_draft, n_accepted;
    bool is_cut;
};

static void count(struct co_app *app, struct co_request *r, const struct decided *d) {
    if (d->n_draft <= 0)
        return;
    size_t index = co_drafter_index(co_drafter_find(d->source));
    struct co_drafting_counts *counts = &app->drafting.counts[index];
    counts->drafts++;
    counts->drafted += (uint64_t)d->n_draft;
    counts->accepted += (uint64_t)d->n_accepted;
    const struct co_length_seen seen = {
        .source = index,
        .class_at = co_length_class(r->sampling.temperature),
        .at = d->at,
        .n_draft = d->is_cut ? d->n_accepted : d->n_draft,
        .n_accepted = d->n_accepted,
    };
    co_length_saw_accept(&app->drafting.length, &r->length, &seen);
}

void co_drafting_decided(struct co_app *app, int32_t i, int32_t n_draft, int32_t n_accepted,
                         bool is_cut) {
    const struct co_proposal *proposal = &app->round.entries[i].proposal;
    struct co_request *r = app->round.entries[i].request;
    int32_t n_model = min32(proposal->n_model, n_draft);
    if (proposal->source == NULL)
        return;
    count(app, r, &(struct decided){"model", 0, n_model, min32(n_accepted, n_model), is_cut});
    /* What stands behind a rejected token of the model was not decided. */
    if (n_accepted >= n_model)
        count(app, r,
              &(struct decided){proposal->source, n_model, n_draft - n_model, n_accepted - n_model,
                                is_cut});
}

/* ---- times ---------------------------------------------------------------------------------- */

void co_drafting_verify_begins(struct co_app *app) {
    const struct co_round *round = &app->round;
    int32_t n_seqs = 0, steps = 0, n_behind = 0;
    app->drafting.verify_begin_ns = ft_clock_now_ns();
    for (int32_t i = 0; i < round->n_entries; i++) {
        const struct co_plan_item *plan = &round->plans[i];
        n_seqs += plan->draft_k > 0;
        steps = plan->draft_k > steps ? plan->draft_k : steps;
        /* One token or two are what every draft begins with. */
        n_behind += plan->draft_tokens > 2 ? plan->draft_tokens - 1 : 0;
    }
    int64_t ns = app->drafting.verify_begin_ns - round->begin_ns;
    if (round->draft_ns > 0 && n_behind >= CATCH_UP_MIN)
        co_length_saw_catch_up(&app->drafting.length, n_seqs, steps, n_behind, ns);
    else if (round->draft_ns > 0 && steps > 0 && app->drafting.steady)
        co_length_saw_draft(&app->drafting.length, n_seqs, steps, ns);
}

void co_drafting_round_ends(struct co_app *app) {
    const struct co_round *round = &app->round;
    int32_t n_seqs = 0, rows = 0;
    for (int32_t i = 0; i < round->n_entries; i++) {
        n_seqs += round->plans[i].n_logits > 0;
        rows += round->plans[i].n_logits;
    }
    if (app->drafting.steady && n_seqs == round->n_entries && n_seqs > 0)
        co_length_saw_verify(&app->drafting.length, n_seqs, rows,
                             ft_clock_now_ns() - app->drafting.verify_begin_ns);
}
