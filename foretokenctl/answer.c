#include "foretokenctl/answer.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

#include "foretokenctl/fields.h"

#define MODULE "answer"
#define ARENA_CHUNK ((size_t)16 << 10)
#define ARENA_MAX ((size_t)1 << 30)

bool ctl_answer_init(struct ctl_answer *answer, uint32_t n) {
    *answer = (struct ctl_answer){.n_choices = n == 0 ? 1 : n};
    ft_buf_init(&answer->request_id, 0);
    ft_buf_init(&answer->prompt_ids, 0);
    ft_buf_init(&answer->prompt_logprobs, 0);
    if (answer->n_choices > CTL_CHOICES_MAX) /* the service says what is wrong with it */
        answer->n_choices = 1;
    answer->arena = ft_arena_create(ARENA_CHUNK, ARENA_MAX);
    answer->choices = calloc(answer->n_choices, sizeof *answer->choices);
    if (answer->arena == NULL || answer->choices == NULL)
        return false;
    for (size_t i = 0; i < answer->n_choices; i++) {
        ft_buf_init(&answer->choices[i].ids, 0);
        ft_buf_init(&answer->choices[i].text, 0);
        ft_buf_init(&answer->choices[i].logprobs, 0);
    }
    return true;
}

void ctl_answer_fini(struct ctl_answer *answer) {
    for (size_t i = 0; answer->choices != NULL && i < answer->n_choices; i++) {
        ft_buf_fini(&answer->choices[i].ids);
        ft_buf_fini(&answer->choices[i].text);
        ft_buf_fini(&answer->choices[i].logprobs);
    }
    free(answer->choices);
    answer->choices = NULL;
    ft_buf_fini(&answer->request_id);
    ft_buf_fini(&answer->prompt_ids);
    ft_buf_fini(&answer->prompt_logprobs);
    ft_arena_destroy(&answer->arena);
}

/* What a message says for good is copied; the arena is the last messages'. */
static void keep(struct ctl_answer *answer, struct ctl_choice *choice,
                 const struct ft_wire_generated *m) {
    ft_buf_add(&choice->ids, m->token_ids, m->n_token_ids * sizeof *m->token_ids);
    ft_buf_add_str(&choice->text, m->text);
    ft_buf_add(&choice->logprobs, m->logprobs, m->n_logprobs * sizeof *m->logprobs);
    ft_buf_add(&answer->prompt_ids, m->prompt_token_ids,
               m->n_prompt_token_ids * sizeof *m->prompt_token_ids);
    ft_buf_add(&answer->prompt_logprobs, m->prompt_logprobs,
               m->n_prompt_logprobs * sizeof *m->prompt_logprobs);
}

static bool any_last(const struct ctl_answer *answer) {
    for (size_t i = 0; i < answer->n_choices; i++)
        if (answer->choices[i].last.finish != FT_WIRE_FINISH_NONE)
            return true;
    return false;
}

enum ft_code ctl_answer_take(struct ctl_answer *answer, struct ft_str message, bool keep_text,
                             struct ft_wire_generated *out, struct ft_err *err) {
    if (!any_last(answer))
        ft_arena_reset(answer->arena);
    if (ft_wire_decode_generated(message, answer->arena, out, err) != FT_OK) {
        err->code = FT_E_PEER_PROTOCOL;
        return err->code;
    }
    if (out->index >= answer->n_choices)
        return ft_err_set(err, FT_E_PEER_PROTOCOL, MODULE,
                          "a message of continuation %" PRIu32 ": %zu were asked for", out->index,
                          answer->n_choices);
    struct ctl_choice *choice = &answer->choices[out->index];
    if (answer->request_id.len == 0)
        ft_buf_add_str(&answer->request_id, out->request_id);
    if (out->finish != FT_WIRE_FINISH_NONE)
        choice->last = *out;
    if (keep_text)
        keep(answer, choice, out);
    return FT_OK;
}

bool ctl_answer_complete(const struct ctl_answer *answer) {
    for (size_t i = 0; i < answer->n_choices; i++)
        if (answer->choices[i].last.finish == FT_WIRE_FINISH_NONE)
            return false;
    return true;
}

bool ctl_answer_failed(const struct ctl_answer *answer) {
    bool failed =
        answer->request_id.failed || answer->prompt_ids.failed || answer->prompt_logprobs.failed;
    for (size_t i = 0; i < answer->n_choices; i++)
        failed = failed || answer->choices[i].ids.failed || answer->choices[i].text.failed ||
                 answer->choices[i].logprobs.failed;
    return failed;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

#define USAGE(kind, name)                                                                          \
    { #name, kind, offsetof(struct ft_wire_usage, name) }
static const struct ctl_field usage_fields[] = {
    USAGE(CTL_U32, prompt_tokens),       USAGE(CTL_U32, completion_tokens),
    USAGE(CTL_U32, cached_tokens),       USAGE(CTL_F64, queue_seconds),
    USAGE(CTL_F64, first_token_seconds), USAGE(CTL_F64, total_seconds),
};
#define SPEC(kind, name)                                                                           \
    { #name, kind, offsetof(struct ft_wire_spec_stats, name) }
static const struct ctl_field spec_fields[] = {
    SPEC(CTL_U64, num_drafts),          SPEC(CTL_U64, num_draft_tokens),
    SPEC(CTL_U64, num_accepted_tokens), SPEC(CTL_U64, num_target_steps),
    SPEC(CTL_U64, num_plain_steps),     SPEC(CTL_BOOL, lossy),
    SPEC(CTL_STR, fallback_reason),
};
#define N_OF(array) (sizeof(array) / sizeof(array)[0])

double ctl_answer_acceptance_rate(const struct ft_wire_spec_stats *s) {
    return ctl_print_ratio((double)s->num_accepted_tokens, (double)s->num_draft_tokens);
}

double ctl_answer_mean_acceptance_length(const struct ft_wire_spec_stats *s) {
    return s->num_drafts == 0 ? 0 : 1 + (double)s->num_accepted_tokens / (double)s->num_drafts;
}

static void add_speculation(struct ft_buf *out, const struct ft_wire_spec_stats *s) {
    ft_buf_add_c(out, "{");
    ctl_fields_json(out, spec_fields, N_OF(spec_fields), s);
    ft_buf_add_c(out, ",\"acceptance_rate\":");
    ctl_print_json_real(out, ctl_answer_acceptance_rate(s));
    ft_buf_add_c(out, ",\"mean_acceptance_length\":");
    ctl_print_json_real(out, ctl_answer_mean_acceptance_length(s));
    ft_buf_add_c(out, ",\"num_accepted_tokens_per_pos\":");
    ctl_print_json_counts(out, s->accepted_per_pos, s->n_pos);
    ft_buf_add_c(out, ",\"num_draft_tokens_per_pos\":");
    ctl_print_json_counts(out, s->drafted_per_pos, s->n_pos);
    ft_buf_add_c(out, "}");
}

static void add_matched_stop(struct ft_buf *out, const struct ft_wire_generated *last) {
    if (last->has_matched_token)
        ft_buf_addf(out, "%" PRId32, last->matched_token_id);
    else if (last->has_matched_str)
        ft_buf_add_json(out, last->matched_stop_str);
    else
        ft_buf_add_c(out, "null");
}

static void add_ids(struct ft_buf *out, const char *name, const struct ft_buf *ids) {
    ft_buf_addf(out, ",\"%s\":", name);
    ctl_print_json_ids(out, (const int32_t *)(const void *)ids->ptr, ids->len / sizeof(int32_t));
}

/* Nothing when there are none. */
static void add_logprobs(struct ft_buf *out, const char *name, const struct ft_buf *logprobs) {
    const struct ft_logprobs *rows = (const struct ft_logprobs *)(const void *)logprobs->ptr;
    const size_t n = logprobs->len / sizeof *rows;
    if (n == 0)
        return;
    ft_buf_addf(out, ",\"%s\":[", name);
    for (size_t i = 0; i < n; i++) {
        ft_buf_addf(out, "%s{\"logprob\":", i == 0 ? "" : ",");
        ctl_print_json_real(out, (double)rows[i].token_logprob);
        ft_buf_add_c(out, ",\"top_token_ids\":");
        ctl_print_json_ids(out, rows[i].ids, (size_t)rows[i].n_top);
        ft_buf_add_c(out, ",\"top_logprobs\":[");
        for (int32_t j = 0; j < rows[i].n_top; j++) {
            ft_buf_add_c(out, j == 0 ? "" : ",");
            ctl_print_json_real(out, (double)rows[i].values[j]);
        }
        ft_buf_add_c(out, "]}");
    }
    ft_buf_add_c(out, "]");
}

static void add_choice(struct ft_buf *out, const struct ctl_choice *choice) {
    const struct ft_wire_generated *last = &choice->last;
    ft_buf_add_c(out, "\"token_ids\":");
    ctl_print_json_ids(out, (const int32_t *)(const void *)choice->ids.ptr,
                       choice->ids.len / sizeof(int32_t));
    ft_buf_add_c(out, ",\"text\":");
    ft_buf_add_json(out, ft_buf_str(&choice->text));
    add_logprobs(out, "logprobs", &choice->logprobs);
    ft_buf_addf(out,
                ",\"finish_reason\":\"%s\",\"matched_stop\":", ft_wire_finish_name(last->finish));
    add_matched_stop(out, last);
    ft_buf_add_c(out, ",\"usage\":{");
    ctl_fields_json(out, usage_fields, N_OF(usage_fields), &last->usage);
    ft_buf_add_c(out, "},\"speculation\":");
    add_speculation(out, &last->speculative);
}

void ctl_answer_json(const struct ctl_answer *answer, struct ft_buf *out) {
    ft_buf_add_c(out, "\"request_id\":");
    ft_buf_add_json(out, ft_buf_str(&answer->request_id));
    if (answer->prompt_ids.len > 0)
        add_ids(out, "prompt_token_ids", &answer->prompt_ids);
    add_logprobs(out, "prompt_logprobs", &answer->prompt_logprobs);
    ft_buf_add_c(out, ",");
    if (answer->n_choices == 1) {
        add_choice(out, &answer->choices[0]);
        return;
    }
    ft_buf_add_c(out, "\"choices\":[");
    for (size_t i = 0; i < answer->n_choices; i++) {
        ft_buf_addf(out, "%s{\"index\":%zu,", i == 0 ? "" : ",", i);
        add_choice(out, &answer->choices[i]);
        ft_buf_add_c(out, "}");
    }
    ft_buf_add_c(out, "]");
}
