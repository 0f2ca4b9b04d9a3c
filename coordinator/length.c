#include "coordinator/length.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODULE "length"

/* Before anything was measured: verification grows by so much a row, drafting by so much a step. */
#define VERIFY_GROWTH 0.08
#define DRAFT_GROWTH 1.0
/* Memory of acceptance in decided drafts: a request changes its subject, a service its clients. */
#define FADE_REQUEST 0.99f
#define FADE_SERVICE 0.998f
/* What is known in advance counts as so many decided drafts. */
#define PRIOR_RATE 0.6
#define PRIOR_SERVICE 4.0
#define PRIOR_REQUEST 24.0
#define PRIOR_POSITION 30.0
/* A change must promise so much: estimates move, and drafts of different length disturb caches. */
#define GAIN_MIN 1.005
/* And a draft so much against none: what it costs is known less well. */
#define GAIN_DRAFT 1.01
#define PROBE_FIRST 12
#define PROBE_LAST 192
#define PROBE_K 2
/* Every so many rounds a neighbour of the best K is tried, so that its costs stay known; before,
 * when a class of batches is new, at the powers of two. */
#define LOOK_AROUND 96
/* Such looks cost at most this part of the time, by what is believed of costs and acceptance; of a
 * time that fades by FADE_TIME with each round, so that nothing is saved up for long. */
#define LOOK_SHARE 0.005
#define FADE_TIME 0.9995
#define RATE_CATCH_UP 0.1
/* What a draft has to read before its first token is spread over so many rounds, or over those that
 * the request has left. */
#define CATCH_UP_ROUNDS 32
/* Less likely tokens never pay: no device verifies fifty rows for the price of one. */
#define LIKELY_MIN 0.02

/* Lengths tried while a service is new, for one request alone: far apart first. Larger batches
 * begin with what these cost. */
static const int32_t k_explore[] = {4, 0, 2, 8, 1, 16, 3, 12, 5, 0, 2, 4, 1, 8, 6, 3};
#define N_EXPLORE (sizeof k_explore / sizeof k_explore[0])

/* ---- policy --------------------------------------------------------------------------------- */

static enum ft_code bad_policy(const char *text, struct ft_err *err) {
    return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                      "num_speculative_tokens is '%.60s': must be 0 to %d, 'auto', or rows "
                      "BATCH:K with rising batch sizes from 1 on, as in 1:6,4:3,16:0",
                      text, FT_DRAFT_LEN_MAX);
}

/* A number of 0 .. max at *text, which moves behind it; -1: none. */
static int32_t read_number(const char **text, int32_t max) {
    if (**text < '0' || **text > '9')
        return -1;
    char *end;
    long number = strtol(*text, &end, 10);
    if (number > max)
        return -1;
    *text = end;
    return (int32_t)number;
}

static enum ft_code parse_table(struct co_length_policy *out, const char *text,
                                struct ft_err *err) {
    const char *at = text;
    for (;;) {
        int32_t from = read_number(&at, 65536);
        if (from < 1 || *at++ != ':' || out->n_rows == CO_LENGTH_TABLE_MAX)
            return bad_policy(text, err);
        int32_t k = read_number(&at, FT_DRAFT_LEN_MAX);
        bool rises = out->n_rows == 0 ? from == 1 : from > out->batch_from[out->n_rows - 1];
        if (k < 0 || !rises)
            return bad_policy(text, err);
        out->batch_from[out->n_rows] = from;
        out->k[out->n_rows++] = k;
        out->k_max = k > out->k_max ? k : out->k_max;
        if (*at == 0)
            return FT_OK;
        if (*at++ != ',')
            return bad_policy(text, err);
    }
}

enum ft_code co_length_parse(struct co_length_policy *policy, const char *text,
                             struct ft_err *err) {
    struct co_length_policy made = {.mode = CO_LENGTH_FIXED};
    if (strcmp(text, "auto") == 0) {
        made.mode = CO_LENGTH_AUTO;
        made.k_max = FT_DRAFT_LEN_MAX;
    } else if (strchr(text, ':') != NULL) {
        made.mode = CO_LENGTH_TABLE;
        if (parse_table(&made, text, err) != FT_OK)
            return FT_E_PROC_CONFIG;
    } else {
        const char *at = text;
        made.k_max = read_number(&at, FT_DRAFT_LEN_MAX);
        if (made.k_max < 0 || *at != 0)
            return bad_policy(text, err);
    }
    *policy = made;
    return FT_OK;
}

int32_t co_length_policy_k(const struct co_length_policy *policy, int32_t n_running) {
    int32_t k = policy->k_max;
    for (int32_t i = 0; i < policy->n_rows; i++)
        if (n_running >= policy->batch_from[i] || i == 0)
            k = policy->k[i];
    return k;
}

/* ---- acceptance ----------------------------------------------------------------------------- */

void co_length_init(struct co_length *length) {
    memset(length, 0, sizeof *length);
    co_cost_init(&length->draft, DRAFT_GROWTH);
    co_cost_init(&length->verify, VERIFY_GROWTH);
}

size_t co_length_class(float temperature) {
    return temperature <= 0.0f ? 0 : temperature <= 0.6f ? 1 : temperature <= 1.2f ? 2 : 3;
}

static void fade(struct co_rates *rates, float factor) {
    for (int32_t i = 0; i < FT_DRAFT_LEN_MAX; i++) {
        rates->decided[i] *= factor;
        rates->accepted[i] *= factor;
    }
}

static void saw(struct co_rates *rates, float factor, const struct co_length_seen *seen) {
    fade(rates, factor);
    for (int32_t i = 0; i < seen->n_draft && i <= seen->n_accepted; i++) {
        if (seen->at + i >= FT_DRAFT_LEN_MAX)
            return;
        rates->decided[seen->at + i] += 1;
        rates->accepted[seen->at + i] += i < seen->n_accepted ? 1.0f : 0.0f;
    }
}

void co_length_saw_accept(struct co_length *length, struct co_length_request *request,
                          const struct co_length_seen *seen) {
    saw(&length->rates[seen->source][seen->class_at], FADE_SERVICE, seen);
    saw(&request->rates[seen->source], FADE_REQUEST, seen);
}

static void sum_up(const struct co_rates *rates, double *decided, double *accepted) {
    *decided = *accepted = 0;
    for (int32_t i = 0; i < FT_DRAFT_LEN_MAX; i++) {
        *decided += (double)rates->decided[i];
        *accepted += (double)rates->accepted[i];
    }
}

double co_length_alpha(const struct co_length *length, size_t source) {
    double decided = 0, accepted = 0;
    for (size_t i = 0; i < CO_LENGTH_CLASSES; i++) {
        double d, a;
        sum_up(&length->rates[source][i], &d, &a);
        decided += d;
        accepted += a;
    }
    return decided > 0 ? accepted / decided : -1;
}

static double log_odds(double p) {
    p = fmin(fmax(p, 0.001), 0.999);
    return log(p / (1 - p));
}

/* Rates by position: of the service, drawn to their mean; moved, in log odds, as far as this
 * request differs from the service; drawn to that, what the request itself has at the position. */
static void rates_of(const struct co_length *length, const struct co_length_item *item,
                     double rate[FT_DRAFT_LEN_MAX]) {
    const struct co_rates *all = &length->rates[item->source][item->class_at];
    const struct co_rates *own = &item->request->rates[item->source];
    double decided, accepted, expected = 0, own_decided, own_accepted;
    sum_up(all, &decided, &accepted);
    double mean = (accepted + PRIOR_SERVICE * PRIOR_RATE) / (decided + PRIOR_SERVICE);
    for (int32_t i = 0; i < FT_DRAFT_LEN_MAX; i++) {
        rate[i] = ((double)all->accepted[i] + PRIOR_SERVICE * mean) /
                  ((double)all->decided[i] + PRIOR_SERVICE);
        expected += (double)own->decided[i] * rate[i];
    }
    sum_up(own, &own_decided, &own_accepted);
    double usual = own_decided > 0 ? expected / own_decided : mean;
    double shift =
        log_odds((own_accepted + PRIOR_REQUEST * usual) / (own_decided + PRIOR_REQUEST)) -
        log_odds(usual);
    for (int32_t i = 0; i < FT_DRAFT_LEN_MAX; i++) {
        double prior = 1 / (1 + exp(-log_odds(rate[i]) - shift));
        rate[i] = ((double)own->accepted[i] + PRIOR_POSITION * prior) /
                  ((double)own->decided[i] + PRIOR_POSITION);
    }
}

double co_length_rate(const struct co_length *length, const struct co_length_request *request,
                      size_t source, size_t class_at, int32_t i) {
    double rate[FT_DRAFT_LEN_MAX];
    struct co_length_request copy = *request;
    struct co_length_item item = {.request = &copy, .source = source, .class_at = class_at};
    rates_of(length, &item, rate);
    return rate[i];
}

/* ---- costs ---------------------------------------------------------------------------------- */

static void pass(struct co_length *length, double ns) {
    length->time_ns = length->time_ns * FADE_TIME + ns;
    length->look_ns *= FADE_TIME;
}

void co_length_saw_draft(struct co_length *length, int32_t n_seqs, int32_t steps, int64_t ns) {
    co_cost_add(&length->draft, n_seqs, steps, (double)ns);
    length->time_ns += (double)ns;
}

void co_length_saw_verify(struct co_length *length, int32_t n_seqs, int32_t rows, int64_t ns) {
    co_cost_add(&length->verify, n_seqs, rows, (double)ns);
    pass(length, (double)ns);
}

void co_length_saw_catch_up(struct co_length *length, int32_t n_seqs, int32_t steps,
                            int32_t n_tokens, int64_t ns) {
    double more = (double)ns;
    if (steps > 0)
        more -= co_cost_estimate(&length->draft, n_seqs, steps);
    double each = fmax(more, 0) / n_tokens;
    double rate = length->catch_up_ns > 0 ? RATE_CATCH_UP : 1;
    length->catch_up_ns += rate * (each - length->catch_up_ns);
}

/* A plan in the making. */
struct plan {
    double tokens;    /* expected to be committed */
    int32_t rows;     /* of the verification */
    int32_t steps;    /* of the draft: the longest */
    int32_t drafting; /* sequences in the draft step */
    double behind;    /* tokens that they have to read before, this round's part of them */
};

/* What phases cost, for one choice. */
struct curves {
    const struct co_length *length;
    struct co_cost_curve verify, draft[CO_COST_BATCHES];
    bool has_draft[CO_COST_BATCHES];
};

static void begin_curves(struct curves *curves, const struct co_length *length, int32_t n_items) {
    curves->length = length;
    co_cost_curve(&length->verify, n_items, &curves->verify);
    memset(curves->has_draft, 0, sizeof curves->has_draft);
}

static double draft_ns(struct curves *curves, int32_t drafting, int32_t steps) {
    int32_t class = co_cost_batch_class(drafting);
    if (!curves->has_draft[class])
        co_cost_curve(&curves->length->draft, drafting, &curves->draft[class]);
    curves->has_draft[class] = true;
    return co_cost_at(&curves->draft[class], steps);
}

static double plan_ns(struct curves *curves, const struct plan *plan) {
    double ns = co_cost_at(&curves->verify, plan->rows);
    if (plan->steps == 0)
        return ns;
    ns += curves->length->catch_up_ns * plan->behind;
    return ns + draft_ns(curves, plan->drafting, plan->steps);
}

static double tokens_a_ns(struct curves *curves, const struct plan *plan) {
    double ns = plan_ns(curves, plan);
    return ns > 0 ? plan->tokens / ns : 0;
}

/* One token more of item, whose k tokens so far are in the plan; the draft reads behind first. */
static void add_token(struct plan *plan, const struct co_length_item *item, int32_t k, double gain,
                      double behind) {
    plan->tokens += gain;
    plan->rows++;
    if (!item->model)
        return;
    plan->drafting += k == 0;
    plan->behind += k == 0 ? behind : 0;
    plan->steps = k + 1 > plan->steps ? k + 1 : plan->steps;
}

/* ---- the choice ----------------------------------------------------------------------------- */

#define ITEMS_MAX 256 /* beyond them nothing is drafted: such a batch fills the device anyway */

struct choice {
    struct curves curves;
    double gain[ITEMS_MAX][FT_DRAFT_LEN_MAX]; /* probability that the token is committed */
    double behind[ITEMS_MAX];                 /* of what the draft has to read, a round's part */
    int32_t k[ITEMS_MAX];
    int32_t k_other[ITEMS_MAX]; /* the best plan in which anything more is drafted than must be */
    bool has_other;
};

static void fill_gains(const struct co_length *length, const struct co_length_item *items,
                       int32_t n, struct choice *choice) {
    for (int32_t i = 0; i < n; i++) {
        double rate[FT_DRAFT_LEN_MAX], reach = (double)items[i].reach;
        if (items[i].k_max == 0)
            continue;
        rates_of(length, &items[i], rate);
        double tokens = 1, rounds = CATCH_UP_ROUNDS;
        for (int32_t k = 0; k < FT_DRAFT_LEN_MAX; k++) {
            int32_t at = items[i].n_before + k;
            reach *= rate[at < FT_DRAFT_LEN_MAX ? at : FT_DRAFT_LEN_MAX - 1];
            choice->gain[i][k] = reach;
            tokens += k < items[i].k_max ? reach : 0;
        }
        /* More does not fit what the request may still get. */
        if (items[i].k_max < FT_DRAFT_LEN_MAX)
            rounds = (items[i].k_max + 1) / tokens;
        choice->behind[i] = items[i].behind / rounds;
    }
}

/* The plan in which item i drafts k[i]. */
static struct plan plan_of(const struct co_length_item *items, int32_t n,
                           const struct choice *choice, const int32_t *k) {
    struct plan plan = {0};
    for (int32_t i = 0; i < n; i++) {
        plan.tokens += 1;
        plan.rows += 1 + items[i].n_before;
        for (int32_t j = 0; j < k[i]; j++)
            add_token(&plan, &items[i], j, choice->gain[i][j], choice->behind[i]);
    }
    return plan;
}

/* The likeliest next token of each item, the likeliest of all first, of equals the first item. */
struct heap {
    int32_t n;
    struct candidate {
        double gain;
        int32_t item;
    } at[ITEMS_MAX];
};

static bool is_likelier(const struct candidate *a, const struct candidate *b) {
    return a->gain > b->gain || (a->gain == b->gain && a->item < b->item);
}

/* Put what stands at i where it belongs among those below it. */
static void sift(struct heap *heap, int32_t i) {
    struct candidate moved = heap->at[i];
    for (int32_t child; (child = 2 * i + 1) < heap->n; i = child) {
        if (child + 1 < heap->n && is_likelier(&heap->at[child + 1], &heap->at[child]))
            child++;
        if (!is_likelier(&heap->at[child], &moved))
            break;
        heap->at[i] = heap->at[child];
    }
    heap->at[i] = moved;
}

static void fill_heap(struct heap *heap, const struct co_length_item *items, int32_t n,
                      const struct choice *choice) {
    heap->n = 0;
    for (int32_t i = 0; i < n; i++)
        if (items[i].is_free && items[i].k_max > 0 && choice->gain[i][0] >= LIKELY_MIN)
            heap->at[heap->n++] = (struct candidate){choice->gain[i][0], i};
    for (int32_t i = heap->n / 2; i-- > 0;)
        sift(heap, i);
}

/* Add the likeliest token of all, again and again, and keep the best plan on the way. Within a
 * request likelihood falls from token to token, so that every plan on the way is a whole one. */
static double best_plan(const struct co_length_item *items, int32_t n, struct choice *choice) {
    static struct heap heap;                            /* one thread chooses */
    static int32_t added[ITEMS_MAX * FT_DRAFT_LEN_MAX]; /* items, in that order */
    int32_t k[ITEMS_MAX] = {0}, n_added = 0, n_best = 0, n_other = 0;
    for (int32_t i = 0; i < n; i++)
        choice->k[i] = choice->k_other[i] = k[i] = items[i].is_free ? 0 : items[i].k_max;
    struct plan plan = plan_of(items, n, choice, k);
    double plain = tokens_a_ns(&choice->curves, &plan), best = plain, other = 0;
    fill_heap(&heap, items, n, choice);
    while (heap.n > 0) {
        struct candidate *top = &heap.at[0];
        int32_t at = top->item;
        add_token(&plan, &items[at], k[at], top->gain, choice->behind[at]);
        added[n_added++] = at;
        k[at]++;
        if (k[at] < items[at].k_max && choice->gain[at][k[at]] >= LIKELY_MIN)
            top->gain = choice->gain[at][k[at]];
        else
            *top = heap.at[--heap.n];
        sift(&heap, 0);
        double rate = tokens_a_ns(&choice->curves, &plan);
        if (rate > other) {
            other = rate;
            n_other = n_added;
        }
        if (rate > best) {
            best = rate;
            n_best = n_added;
        }
    }
    if (best < GAIN_DRAFT * plain) {
        best = plain;
        n_best = 0;
    }
    for (int32_t i = 0; i < n_added; i++) {
        choice->k[added[i]] += i < n_best;
        choice->k_other[added[i]] += i < n_other;
    }
    choice->has_other = n_other > 0;
    return best;
}

int32_t co_length_extend(const struct co_length *length, const struct co_length_item *item,
                         int32_t n_items) {
    double rate[FT_DRAFT_LEN_MAX], reach = (double)item->reach;
    double tokens = 1, best_speed = 0;
    int32_t best = 0;
    rates_of(length, item, rate);
    /* Those before it count as accepted as often as not: their mean lies near reach. */
    tokens += item->n_before * (1 + reach) / 2;
    for (int32_t k = 0; k <= item->k_max && item->n_before + k <= FT_DRAFT_LEN_MAX; k++) {
        if (k > 0) {
            reach *= rate[item->n_before + k - 1];
            tokens += reach;
        }
        double ns = co_cost_estimate(&length->verify, n_items, n_items + item->n_before + k) +
                    co_cost_estimate(&length->draft, 1, item->n_before);
        if (ns > 0 && tokens / ns > best_speed * (k > 0 ? GAIN_MIN : 1)) {
            best_speed = tokens / ns;
            best = k;
        }
    }
    return best;
}

static int32_t clip(int32_t k, const struct co_length_item *item) {
    return !item->is_free || k > item->k_max ? item->k_max : k < 0 ? 0 : k;
}

/* Stay with what each request did last when a change promises too little. */
static void stay_if_as_good(const struct co_length_item *items, int32_t n, struct choice *choice,
                            double best) {
    int32_t last[ITEMS_MAX];
    for (int32_t i = 0; i < n; i++) {
        if (items[i].is_free && !items[i].request->began)
            return;
        last[i] = clip(items[i].request->k_last, &items[i]);
    }
    struct plan plan = plan_of(items, n, choice, last);
    if (best < GAIN_MIN * tokens_a_ns(&choice->curves, &plan))
        memcpy(choice->k, last, (size_t)n * sizeof *last);
}

/* ---- looks at other lengths ----------------------------------------------------------------- */

/* What a round with k costs more than its tokens are worth. */
static double loss(const struct co_length_item *items, int32_t n, struct choice *choice,
                   const int32_t *k) {
    struct plan chosen = plan_of(items, n, choice, choice->k), plan = plan_of(items, n, choice, k);
    double rate = tokens_a_ns(&choice->curves, &chosen);
    double ns = plan_ns(&choice->curves, &plan);
    for (int32_t i = 0; i < n; i++)
        if (k[i] > 0 && choice->k[i] == 0 && items[i].model)
            ns += choice->curves.length->catch_up_ns * items[i].behind;
    return rate > 0 ? fmax(ns - plan.tokens / rate, 0) : 0;
}

/* A request at 0 learns nothing: it is to try again, less and less often. True when it is time. */
static bool is_due(const struct co_length_item *item, int32_t k) {
    struct co_length_request *request = item->request;
    if (k > 0 || item->k_max == 0) {
        request->rounds_at_0 = request->probe_after = 0;
        return false;
    }
    if (request->probe_after == 0)
        request->probe_after = PROBE_FIRST;
    return ++request->rounds_at_0 >= request->probe_after;
}

static void has_tried(struct co_length_request *request) {
    request->rounds_at_0 = 0;
    if (request->probe_after < PROBE_LAST)
        request->probe_after *= 2;
}

static bool is_time_to_look(uint32_t n_rounds) {
    return n_rounds % LOOK_AROUND == 0 ||
           (n_rounds < LOOK_AROUND && (n_rounds & (n_rounds - 1)) == 0);
}

/* One more, one less, one more, none at all: the neighbours of the best, and what it is compared
 * with; where the best is to draft nothing, the best that drafts. A measurement that was far off,
 * or costs that were only drawn from others, are found out so. True when k is another plan. */
static bool neighbours(uint32_t n_rounds, const struct co_length_item *items, int32_t n,
                       const struct choice *choice, int32_t *k) {
    bool differs = false, drafts = false;
    uint32_t turn = n_rounds < LOOK_AROUND ? n_rounds % 3 : n_rounds / LOOK_AROUND % 4;
    for (int32_t i = 0; i < n; i++) {
        k[i] = choice->k[i];
        if (!items[i].is_free || k[i] == 0)
            continue;
        drafts = true;
        k[i] = clip(turn == 3 ? 0 : turn == 1 ? k[i] - 1 : k[i] + 1, &items[i]);
        differs = differs || k[i] != choice->k[i];
    }
    if (drafts || !choice->has_other)
        return differs;
    memcpy(k, choice->k_other, (size_t)n * sizeof *k);
    return true;
}

/* Other lengths than the chosen ones where it is time for them and they are not too dear. A request
 * whose time has come and that cannot be paid for waits. */
static void look(struct co_length *length, uint32_t n_rounds, struct co_length_item *items,
                 int32_t n, struct choice *choice) {
    int32_t k[ITEMS_MAX];
    double budget =
        LOOK_SHARE * length->time_ns - length->look_ns + co_cost_at(&choice->curves.verify, n);
    double spent = 0;
    if (is_time_to_look(n_rounds) && neighbours(n_rounds, items, n, choice, k) &&
        (spent = loss(items, n, choice, k)) <= budget) {
        for (int32_t i = 0; i < n; i++)
            items[i].k = k[i];
    } else {
        spent = 0;
        memcpy(k, choice->k, (size_t)n * sizeof *k);
        bool can_pay = true;
        for (int32_t i = 0; i < n; i++) {
            if (!items[i].is_free || !is_due(&items[i], choice->k[i]) || !can_pay)
                continue;
            k[i] = clip(PROBE_K, &items[i]);
            double with = loss(items, n, choice, k);
            can_pay = with <= budget;
            if (!can_pay)
                continue;
            spent = with;
            items[i].k = k[i];
            has_tried(items[i].request);
        }
    }
    length->look_ns += spent;
}

static void note(struct co_length *length, const struct co_length_item *items, int32_t n) {
    double k = 0;
    int32_t n_free = 0;
    for (int32_t i = 0; i < n; i++) {
        n_free += items[i].is_free;
        k += items[i].is_free ? items[i].k : 0;
    }
    if (n_free > 0)
        length->k_mean += 0.02 * (k / n_free - length->k_mean);
}

void co_length_choose(struct co_length *length, struct co_length_item *items, int32_t n) {
    static struct choice choice; /* too large for the stack; one thread chooses */
    bool any = false;
    for (int32_t i = 0; i < n; i++) {
        items[i].k = items[i].is_free && i >= ITEMS_MAX ? 0 : items[i].k_max;
        any = any || (items[i].is_free && items[i].k_max > 0);
    }
    if (!any)
        return;
    n = n < ITEMS_MAX ? n : ITEMS_MAX;
    uint32_t round = length->n_rounds[co_cost_batch_class(n)]++;
    if (n == 1 && round < N_EXPLORE) {
        items[0].k = clip(k_explore[round], &items[0]);
        return;
    }
    begin_curves(&choice.curves, length, n);
    fill_gains(length, items, n, &choice);
    double best = best_plan(items, n, &choice);
    stay_if_as_good(items, n, &choice, best);
    for (int32_t i = 0; i < n; i++) {
        items[i].k = choice.k[i];
        if (!items[i].is_free)
            continue;
        items[i].request->k_last = items[i].k;
        items[i].request->began = true;
    }
    look(length, round, items, n, &choice);
    note(length, items, n);
}
