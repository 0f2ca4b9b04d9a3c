#include "unit/test_wire_samples.h"

#include "common/wire/admin.h"
#include "common/wire/inference.h"
#include "common/wire/worker.h"
#include "unit/test_wire_values.h"

/* ---- random values -------------------------------------------------------------------------- */

/* splitmix64 */
uint64_t sample_u64(struct sample_rng *rng) {
    uint64_t z = rng->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* make_<message> and read_<message> out of any_<message> and show_<message>. */
#define SAMPLE(message, type)                                                                      \
    static void make_##message(struct sample_rng *rng, struct ft_arena *arena,                     \
                               struct ft_buf *wire, struct ft_buf *text) {                         \
        struct type in = any_##message(rng, arena);                                                \
        ft_wire_encode_##message(&in, wire);                                                       \
        show_##message(text, &in);                                                                 \
    }                                                                                              \
    static enum ft_code read_##message(struct ft_str wire, struct ft_arena *arena,                 \
                                       struct ft_buf *text, struct ft_err *err) {                  \
        struct type out;                                                                           \
        enum ft_code code = ft_wire_decode_##message(wire, arena, &out, err);                      \
        if (code == FT_OK)                                                                         \
            show_##message(text, &out);                                                            \
        return code;                                                                               \
    }

/* ---- worker.h ------------------------------------------------------------------------------- */

static struct ft_wire_describe any_describe(struct sample_rng *rng, struct ft_arena *arena) {
    struct ft_wire_describe m = {.epoch = any_u64(rng), .role = any_str(rng, arena)};
    char *fingerprint = ft_arena_alloc(arena, FT_WIRE_FINGERPRINT_BYTES);
    for (size_t i = 0; i < FT_WIRE_FINGERPRINT_BYTES; i++)
        fingerprint[i] = (char)sample_u64(rng);
    m.model_dir = any_str(rng, arena);
    m.architecture = any_str(rng, arena);
    m.vocab_size = any_u32(rng);
    m.tokenizer_fingerprint = (struct ft_str){fingerprint, FT_WIRE_FINGERPRINT_BYTES};
    m.max_model_len = any_u32(rng);
    m.kv_block_tokens = any_u32(rng);
    m.kv_blocks_total = any_u64(rng);
    m.dtype = any_str(rng, arena);
    m.backend = any_str(rng, arena);
    m.device_uuid = any_str(rng, arena);
    m.n_parameters = any_u64(rng);
    m.weight_bytes = any_u64(rng);
    m.max_step_tokens = any_u32(rng);
    m.max_step_sequences = any_u32(rng);
    m.max_step_rows = any_u32(rng);
    m.max_draft_len = any_u32(rng);
    m.version = any_str(rng, arena);
    m.weights_fingerprint = any_u64(rng);
    return m;
}

static void show_describe(struct ft_buf *text, const struct ft_wire_describe *in) {
    NUM(epoch), STR(role), STR(model_dir), STR(architecture), NUM(vocab_size);
    STR(tokenizer_fingerprint), NUM(max_model_len), NUM(kv_block_tokens), NUM(kv_blocks_total);
    STR(dtype), STR(backend), STR(device_uuid), NUM(n_parameters), NUM(weight_bytes);
    NUM(max_step_tokens), NUM(max_step_sequences), NUM(max_step_rows), NUM(max_draft_len);
    STR(version), NUM(weights_fingerprint);
}

static struct ft_wire_attach any_attach(struct sample_rng *rng, struct ft_arena *arena) {
    (void)arena;
    return (struct ft_wire_attach){any_u64(rng), any_u64(rng), coin(rng), coin(rng)};
}

static void show_attach(struct ft_buf *text, const struct ft_wire_attach *in) {
    NUM(epoch), NUM(coordinator_epoch), NUM(mapped), NUM(device_rows);
}

static struct ft_wire_attached any_attached(struct sample_rng *rng, struct ft_arena *arena) {
    return (struct ft_wire_attached){any_str(rng, arena), any_u64(rng)};
}

static void show_attached(struct ft_buf *text, const struct ft_wire_attached *in) {
    STR(shm_name), NUM(region_bytes);
}

static struct ft_wire_release any_release(struct sample_rng *rng, struct ft_arena *arena) {
    size_t n = any_count(rng, 100);
    uint64_t *ids = ft_arena_calloc(arena, n, sizeof *ids);
    for (size_t i = 0; i < n; i++)
        ids[i] = any_u64(rng);
    return (struct ft_wire_release){any_u64(rng), ids, n};
}

static void show_release(struct ft_buf *text, const struct ft_wire_release *in) {
    NUM(epoch);
    show_u64s(text, "seq_ids", in->seq_ids, in->n_seq_ids);
}

static struct ft_wire_worker_stats any_worker_stats(struct sample_rng *rng,
                                                    struct ft_arena *arena) {
    (void)arena;
    return (struct ft_wire_worker_stats){any_u64(rng), any_u64(rng), any_u64(rng),
                                         any_u64(rng), any_u64(rng), any_u64(rng),
                                         any_u64(rng), any_u32(rng), any_u64(rng)};
}

static void show_worker_stats(struct ft_buf *text, const struct ft_wire_worker_stats *in) {
    NUM(epoch), NUM(steps), NUM(step_tokens), NUM(step_nanos), NUM(kv_blocks_total);
    NUM(kv_blocks_free), NUM(kv_blocks_cached), NUM(sequences), NUM(resident_bytes);
}

static int32_t *ascending_ids(struct sample_rng *rng, struct ft_arena *arena, size_t *n) {
    *n = coin(rng) ? 0 : any_count(rng, FT_SAMPLING_LIST_MAX);
    int32_t *ids = ft_arena_calloc(arena, *n, sizeof *ids);
    for (size_t i = 0; i < *n; i++)
        ids[i] = (int32_t)(i * 5 + below(rng, 5));
    return ids;
}

static struct ft_sampling any_sampling(struct sample_rng *rng, struct ft_arena *arena) {
    size_t n = any_count(rng, FT_SAMPLING_LIST_MAX);
    struct ft_bias *bias = ft_arena_calloc(arena, n, sizeof *bias);
    for (size_t i = 0; i < n; i++)
        bias[i] = (struct ft_bias){(int32_t)(i * 7 + below(rng, 7)), between(rng, -100, 100)};
    size_t n_allowed, n_banned;
    const int32_t *allowed = ascending_ids(rng, arena, &n_allowed);
    const int32_t *banned = ascending_ids(rng, arena, &n_banned);
    return (struct ft_sampling){
        .temperature = coin(rng) ? 0 : between(rng, 0, 2),
        .top_p = between(rng, 0, 1),
        .top_k = (int32_t)below(rng, INT32_MAX),
        .min_p = between(rng, 0, 1),
        .frequency_penalty = between(rng, -2, 2),
        .presence_penalty = between(rng, -2, 2),
        .repetition_penalty = between(rng, 0.01f, 100),
        .seed = any_u64(rng),
        .coupled = coin(rng),
        .bias = bias,
        .n_bias = n,
        .allowed = allowed,
        .n_allowed = n_allowed,
        .banned = banned,
        .n_banned = n_banned,
    };
}

static struct ft_wire_step any_step(struct sample_rng *rng, struct ft_arena *arena) {
    size_t n = any_count(rng, 40);
    struct ft_wire_seq_step *seqs = ft_arena_calloc(arena, n, sizeof *seqs);
    for (size_t i = 0; i < n; i++) {
        struct ft_wire_seq_step *s = &seqs[i];
        s->seq_id = any_u64(rng);
        s->keep = any_u32(rng);
        s->n_tokens = any_count(rng, 200);
        s->tokens = random_ids(rng, arena, s->n_tokens);
        s->n_logits = any_u32(rng);
        s->draft_len = any_u32(rng);
        s->has_sampling = coin(rng);
        if (s->has_sampling) {
            s->sampling = any_sampling(rng, arena);
            s->n_prompt = any_u32(rng);
        }
    }
    size_t n_release = any_count(rng, 20);
    uint64_t *release = ft_arena_calloc(arena, n_release, sizeof *release);
    for (size_t i = 0; i < n_release; i++)
        release[i] = any_u64(rng);
    return (struct ft_wire_step){
        .step_id = any_u64(rng),
        .epoch = any_u64(rng),
        .generation = (uint32_t)coin(rng),
        .seqs = seqs,
        .n_seqs = n,
        .coordinator_epoch = any_u64(rng),
        .release = release,
        .n_release = n_release,
    };
}

static void show_sampling(struct ft_buf *text, const struct ft_sampling *in) {
    REAL(temperature), REAL(top_p), NUM(top_k), REAL(min_p), REAL(frequency_penalty);
    REAL(presence_penalty), REAL(repetition_penalty), NUM(seed), NUM(coupled);
    show_bias(text, in->bias, in->n_bias);
    IDS(allowed, n_allowed), IDS(banned, n_banned);
}

static void show_seq_step(struct ft_buf *text, const struct ft_wire_seq_step *in) {
    NUM(seq_id), NUM(keep), IDS(tokens, n_tokens), NUM(n_logits), NUM(draft_len);
    NUM(has_sampling), NUM(n_prompt);
    show_sampling(text, &in->sampling);
}

static void show_step(struct ft_buf *text, const struct ft_wire_step *in) {
    NUM(step_id), NUM(epoch), NUM(generation), NUM(n_seqs), NUM(coordinator_epoch), NUM(n_release);
    for (size_t i = 0; i < in->n_release; i++)
        NUM(release[i]);
    for (size_t i = 0; i < in->n_seqs; i++)
        show_seq_step(text, &in->seqs[i]);
}

static struct ft_wire_step_reply any_step_reply(struct sample_rng *rng, struct ft_arena *arena) {
    size_t n = any_count(rng, 40);
    struct ft_wire_seq_result *results = ft_arena_calloc(arena, n, sizeof *results);
    for (size_t i = 0; i < n; i++) {
        struct ft_wire_seq_result *r = &results[i];
        r->seq_id = any_u64(rng);
        r->status = (enum ft_wire_seq_status)below(rng, FT_WIRE_SEQ_NUMERIC + 1);
        r->cached = any_u32(rng);
        r->first_row = any_u32(rng);
        r->n_rows = any_u32(rng);
        r->n_draft_ids = any_count(rng, FT_DRAFT_LEN_MAX);
        r->draft_ids = random_ids(rng, arena, r->n_draft_ids);
        r->detail = any_str(rng, arena);
        r->prefix_hit = any_u32(rng);
    }
    return (struct ft_wire_step_reply){any_u64(rng), any_u64(rng), any_u64(rng), results, n,
                                       any_u64(rng)};
}

static void show_result(struct ft_buf *text, const struct ft_wire_seq_result *in) {
    NUM(seq_id), NUM(status), NUM(cached), NUM(first_row), NUM(n_rows);
    IDS(draft_ids, n_draft_ids), STR(detail), NUM(prefix_hit);
}

static void show_step_reply(struct ft_buf *text, const struct ft_wire_step_reply *in) {
    NUM(step_id), NUM(epoch), NUM(compute_nanos), NUM(n_results), NUM(begin_nanos);
    for (size_t i = 0; i < in->n_results; i++)
        show_result(text, &in->results[i]);
}

/* ---- inference.h ---------------------------------------------------------------------------- */

static struct ft_wire_prompt any_prompt(struct sample_rng *rng, struct ft_arena *arena,
                                        bool ids_allowed) {
    enum ft_wire_input kinds[] = {FT_WIRE_INPUT_NONE, FT_WIRE_INPUT_TEXT, FT_WIRE_INPUT_CHAT,
                                  FT_WIRE_INPUT_IDS};
    struct ft_wire_prompt p = {.kind = kinds[below(rng, ids_allowed ? 4 : 3)]};
    if (p.kind == FT_WIRE_INPUT_IDS) {
        p.n_ids = any_count(rng, 500);
        p.ids = random_ids(rng, arena, p.n_ids);
    } else if (p.kind == FT_WIRE_INPUT_TEXT) {
        p.text = any_str(rng, arena);
    } else if (p.kind == FT_WIRE_INPUT_CHAT) {
        p.n_messages = any_count(rng, 20);
        struct ft_wire_chat_message *m = ft_arena_calloc(arena, p.n_messages, sizeof *m);
        for (size_t i = 0; i < p.n_messages; i++)
            m[i] = (struct ft_wire_chat_message){any_str(rng, arena), any_str(rng, arena)};
        p.messages = m;
    }
    return p;
}

static void show_prompt(struct ft_buf *text, const struct ft_wire_prompt *in) {
    NUM(kind), IDS(ids, n_ids), STR(text), NUM(n_messages);
    for (size_t i = 0; i < in->n_messages; i++)
        STR(messages[i].role), STR(messages[i].content);
}

/* An optional field: unset is 0 in the struct, so that both sides of the round trip compare. */
#define MAYBE(field, value)                                                                        \
    do {                                                                                           \
        m.has_##field = coin(rng);                                                                 \
        if (m.has_##field)                                                                         \
            m.field = value;                                                                       \
    } while (0)

static struct ft_wire_params any_params(struct sample_rng *rng, struct ft_arena *arena) {
    struct ft_wire_params m = {0};
    MAYBE(temperature, between(rng, 0, 2));
    MAYBE(top_p, between(rng, 0, 1));
    MAYBE(repetition_penalty, between(rng, 0, 2));
    MAYBE(max_tokens, any_u32(rng));
    MAYBE(skip_special_tokens, coin(rng));
    MAYBE(n, any_u32(rng));
    MAYBE(logprobs, any_i32(rng));
    MAYBE(prompt_logprobs, any_i32(rng));
    MAYBE(seed, any_u64(rng));
    MAYBE(truncate_prompt_tokens, any_u32(rng));
    MAYBE(time_limit_millis, any_u32(rng));
    m.top_k = any_i32(rng);
    m.min_p = between(rng, 0, 1);
    m.frequency_penalty = between(rng, -2, 2);
    m.presence_penalty = between(rng, -2, 2);
    m.min_tokens = any_u32(rng);
    m.n_stop = any_count(rng, 16);
    struct ft_str *stop = ft_arena_calloc(arena, m.n_stop, sizeof *stop);
    for (size_t i = 0; i < m.n_stop; i++)
        stop[i] = any_str(rng, arena);
    m.stop = stop;
    m.n_stop_token_ids = any_count(rng, 64);
    m.stop_token_ids = random_ids(rng, arena, m.n_stop_token_ids);
    m.ignore_eos = coin(rng);
    m.include_stop_str_in_output = coin(rng);
    m.n_logit_bias = any_count(rng, 200);
    struct ft_bias *bias = ft_arena_calloc(arena, m.n_logit_bias, sizeof *bias);
    for (size_t i = 0; i < m.n_logit_bias; i++)
        bias[i] = (struct ft_bias){(int32_t)(i * 99 + below(rng, 99)), between(rng, -100, 100)};
    m.logit_bias = bias;
    m.n_allowed_token_ids = any_count(rng, 300);
    m.allowed_token_ids = random_ids(rng, arena, m.n_allowed_token_ids);
    m.n_banned_token_ids = any_count(rng, 300);
    m.banned_token_ids = random_ids(rng, arena, m.n_banned_token_ids);
    return m;
}

static void show_params(struct ft_buf *text, const struct ft_wire_params *in) {
    NUM(has_temperature), NUM(has_top_p), NUM(has_repetition_penalty), NUM(has_max_tokens);
    NUM(has_skip_special_tokens), NUM(has_n), NUM(has_logprobs), NUM(has_prompt_logprobs);
    NUM(has_seed), NUM(has_truncate_prompt_tokens), NUM(has_time_limit_millis);
    REAL(temperature), REAL(top_p), REAL(min_p), REAL(frequency_penalty), REAL(presence_penalty);
    REAL(repetition_penalty), NUM(top_k), NUM(max_tokens), NUM(min_tokens), NUM(n_stop);
    for (size_t i = 0; i < in->n_stop; i++)
        STR(stop[i]);
    IDS(stop_token_ids, n_stop_token_ids), NUM(skip_special_tokens), NUM(ignore_eos);
    NUM(include_stop_str_in_output), NUM(n), NUM(logprobs), NUM(prompt_logprobs), NUM(seed);
    show_bias(text, in->logit_bias, in->n_logit_bias);
    NUM(truncate_prompt_tokens), NUM(time_limit_millis);
    IDS(allowed_token_ids, n_allowed_token_ids), IDS(banned_token_ids, n_banned_token_ids);
}

static struct ft_wire_spec any_spec(struct sample_rng *rng, struct ft_arena *arena) {
    struct ft_wire_spec m = {.n_synthetic_acceptance_rates = any_count(rng, 20)};
    MAYBE(lenience, between(rng, 0, 1));
    MAYBE(synthetic_acceptance_length, between(rng, 1, 17));
    MAYBE(draft_temperature, between(rng, 0, 2));
    MAYBE(draft_top_k, any_i32(rng));
    MAYBE(draft_top_p, between(rng, 0, 1));
    m.rejection_sample_method = any_str(rng, arena);
    float *rates = ft_arena_calloc(arena, m.n_synthetic_acceptance_rates, sizeof *rates);
    for (size_t i = 0; i < m.n_synthetic_acceptance_rates; i++)
        rates[i] = between(rng, 0, 1);
    m.synthetic_acceptance_rates = rates;
    return m;
}

static void show_spec(struct ft_buf *text, const struct ft_wire_spec *in) {
    NUM(has_lenience), NUM(has_synthetic_acceptance_length), NUM(has_draft_temperature);
    NUM(has_draft_top_k), NUM(has_draft_top_p), REAL(lenience), REAL(synthetic_acceptance_length);
    REAL(draft_temperature), NUM(draft_top_k), REAL(draft_top_p), STR(rejection_sample_method);
    NUM(n_synthetic_acceptance_rates);
    for (size_t i = 0; i < in->n_synthetic_acceptance_rates; i++)
        REAL(synthetic_acceptance_rates[i]);
}

static struct ft_wire_generate any_generate(struct sample_rng *rng, struct ft_arena *arena) {
    struct ft_wire_generate m = {.request_id = any_str(rng, arena)};
    m.input = any_prompt(rng, arena, true);
    m.params = any_params(rng, arena);
    m.stream = coin(rng);
    MAYBE(spec_enabled, coin(rng));
    MAYBE(num_speculative_tokens, any_u32(rng));
    m.spec = any_spec(rng, arena);
    m.return_prompt_token_ids = coin(rng);
    m.drafter = any_str(rng, arena);
    MAYBE(parse_special, coin(rng));
    MAYBE(add_special_tokens, coin(rng));
    m.priority = (int32_t)any_u32(rng);
    return m;
}

static void show_generate(struct ft_buf *text, const struct ft_wire_generate *in) {
    STR(request_id);
    show_prompt(text, &in->input);
    show_params(text, &in->params);
    NUM(stream), NUM(has_spec_enabled), NUM(spec_enabled), NUM(has_num_speculative_tokens);
    STR(drafter);
    NUM(num_speculative_tokens), NUM(has_parse_special), NUM(parse_special);
    NUM(has_add_special_tokens), NUM(add_special_tokens), NUM(return_prompt_token_ids);
    NUM(priority);
    show_spec(text, &in->spec);
}

static struct ft_logprobs *any_logprobs(struct sample_rng *rng, struct ft_arena *arena, size_t n) {
    struct ft_logprobs *made = ft_arena_calloc(arena, n, sizeof *made);
    for (size_t i = 0; i < n; i++) {
        made[i].token_logprob = between(rng, -30, 0);
        made[i].n_top = (int32_t)below(rng, FT_LOGPROBS_MAX + 1);
        for (int32_t j = 0; j < made[i].n_top; j++)
            made[i].ids[j] = any_i32(rng), made[i].values[j] = between(rng, -30, 0);
    }
    return made;
}

static void show_logprobs(struct ft_buf *text, const struct ft_logprobs *all, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const struct ft_logprobs *in = &all[i];
        REAL(token_logprob), NUM(n_top);
        for (int32_t j = 0; j < in->n_top; j++)
            NUM(ids[j]), REAL(values[j]);
    }
}

static struct ft_wire_spec_stats any_spec_stats(struct sample_rng *rng, struct ft_arena *arena) {
    struct ft_wire_spec_stats s = {.num_drafts = any_u64(rng),
                                   .num_draft_tokens = any_u64(rng),
                                   .num_accepted_tokens = any_u64(rng),
                                   .num_target_steps = any_u64(rng),
                                   .num_plain_steps = any_u64(rng)};
    s.n_pos = any_count(rng, FT_DRAFT_LEN_MAX);
    for (size_t i = 0; i < s.n_pos; i++) {
        s.accepted_per_pos[i] = any_u64(rng);
        s.drafted_per_pos[i] = any_u64(rng);
    }
    s.lossy = coin(rng);
    s.fallback_reason = any_str(rng, arena);
    return s;
}

static struct ft_wire_generated any_generated(struct sample_rng *rng, struct ft_arena *arena) {
    struct ft_wire_generated m = {.n_token_ids = any_count(rng, 50)};
    m.token_ids = random_ids(rng, arena, m.n_token_ids);
    m.text = any_str(rng, arena);
    m.finish = (enum ft_wire_finish)below(rng, FT_WIRE_FINISH_ABORT + 1);
    m.has_matched_token = coin(rng);
    m.has_matched_str = !m.has_matched_token && coin(rng);
    if (m.has_matched_token)
        m.matched_token_id = any_i32(rng);
    if (m.has_matched_str)
        m.matched_stop_str = any_str(rng, arena);
    MAYBE(usage, ((struct ft_wire_usage){any_u32(rng), any_u32(rng), any_u32(rng), any_seconds(rng),
                                         any_seconds(rng), any_seconds(rng)}));
    MAYBE(speculative, any_spec_stats(rng, arena));
    m.request_id = any_str(rng, arena);
    m.n_logprobs = any_count(rng, 30);
    m.logprobs = any_logprobs(rng, arena, m.n_logprobs);
    m.n_prompt_logprobs = any_count(rng, 30);
    m.prompt_logprobs = any_logprobs(rng, arena, m.n_prompt_logprobs);
    m.n_prompt_token_ids = any_count(rng, 50);
    m.prompt_token_ids = random_ids(rng, arena, m.n_prompt_token_ids);
    m.index = any_u32(rng);
    return m;
}

static void show_usage(struct ft_buf *text, const struct ft_wire_usage *in) {
    NUM(prompt_tokens), NUM(completion_tokens), NUM(cached_tokens);
    REAL(queue_seconds), REAL(first_token_seconds), REAL(total_seconds);
}

static void show_spec_stats(struct ft_buf *text, const struct ft_wire_spec_stats *in) {
    NUM(num_drafts), NUM(num_draft_tokens), NUM(num_accepted_tokens), NUM(num_target_steps);
    NUM(num_plain_steps), NUM(lossy), STR(fallback_reason);
    show_u64s(text, "accepted_per_pos", in->accepted_per_pos, in->n_pos);
    show_u64s(text, "drafted_per_pos", in->drafted_per_pos, in->n_pos);
}

static void show_generated(struct ft_buf *text, const struct ft_wire_generated *in) {
    IDS(token_ids, n_token_ids), STR(text), NUM(finish), NUM(has_matched_token);
    NUM(has_matched_str), NUM(matched_token_id), STR(matched_stop_str), NUM(has_usage);
    show_usage(text, &in->usage);
    NUM(has_speculative);
    show_spec_stats(text, &in->speculative);
    STR(request_id), NUM(n_logprobs), NUM(n_prompt_logprobs), NUM(index);
    show_logprobs(text, in->logprobs, in->n_logprobs);
    show_logprobs(text, in->prompt_logprobs, in->n_prompt_logprobs);
    IDS(prompt_token_ids, n_prompt_token_ids);
}

static struct ft_wire_tokenize any_tokenize(struct sample_rng *rng, struct ft_arena *arena) {
    struct ft_wire_tokenize m = {.input = any_prompt(rng, arena, false)};
    MAYBE(parse_special, coin(rng));
    MAYBE(add_special_tokens, coin(rng));
    return m;
}

static void show_tokenize(struct ft_buf *text, const struct ft_wire_tokenize *in) {
    show_prompt(text, &in->input);
    NUM(has_parse_special), NUM(parse_special);
    NUM(has_add_special_tokens), NUM(add_special_tokens);
}

static struct ft_wire_ids any_ids(struct sample_rng *rng, struct ft_arena *arena) {
    size_t n = any_count(rng, 500);
    return (struct ft_wire_ids){random_ids(rng, arena, n), n};
}

static void show_ids(struct ft_buf *text, const struct ft_wire_ids *in) {
    IDS(ids, n_ids);
}

static struct ft_wire_detokenize any_detokenize(struct sample_rng *rng, struct ft_arena *arena) {
    struct ft_wire_detokenize m = {.n_ids = any_count(rng, 500)};
    m.ids = random_ids(rng, arena, m.n_ids);
    MAYBE(skip_special_tokens, coin(rng));
    return m;
}

static void show_detokenize(struct ft_buf *text, const struct ft_wire_detokenize *in) {
    IDS(ids, n_ids), NUM(has_skip_special_tokens), NUM(skip_special_tokens);
}

static struct ft_wire_text any_text(struct sample_rng *rng, struct ft_arena *arena) {
    return (struct ft_wire_text){any_str(rng, arena)};
}

static void show_text(struct ft_buf *text, const struct ft_wire_text *in) {
    STR(text);
}

static struct ft_wire_model any_model(struct sample_rng *rng, struct ft_arena *arena) {
    return (struct ft_wire_model){
        .name = any_str(rng, arena),
        .architecture = any_str(rng, arena),
        .dtype = any_str(rng, arena),
        .backend = any_str(rng, arena),
        .tokenizer_fingerprint = any_str(rng, arena),
        .vocab_size = any_u32(rng),
        .max_model_len = any_u32(rng),
        .n_parameters = any_u64(rng),
        .weight_bytes = any_u64(rng),
    };
}

static struct ft_wire_model_info any_model_info(struct sample_rng *rng, struct ft_arena *arena) {
    struct ft_wire_model_info m = {.target = any_model(rng, arena)};
    MAYBE(draft, any_model(rng, arena));
    m.speculation = any_str(rng, arena);
    m.speculation_reason = any_str(rng, arena);
    m.num_speculative_tokens = any_u32(rng);
    m.rejection_sample_method = any_str(rng, arena);
    m.max_model_len = any_u32(rng);
    m.n_eos_token_ids = any_count(rng, 5);
    m.eos_token_ids = random_ids(rng, arena, m.n_eos_token_ids);
    m.chat_format = any_str(rng, arena);
    m.version = any_str(rng, arena);
    return m;
}

static void show_model(struct ft_buf *text, const struct ft_wire_model *in) {
    STR(name), STR(architecture), STR(dtype), STR(backend), STR(tokenizer_fingerprint);
    NUM(vocab_size), NUM(max_model_len), NUM(n_parameters), NUM(weight_bytes);
}

static void show_model_info(struct ft_buf *text, const struct ft_wire_model_info *in) {
    show_model(text, &in->target);
    NUM(has_draft);
    show_model(text, &in->draft);
    STR(speculation), STR(speculation_reason), NUM(num_speculative_tokens);
    STR(rejection_sample_method), NUM(max_model_len), IDS(eos_token_ids, n_eos_token_ids);
    STR(chat_format), STR(version);
}

/* ---- admin.h -------------------------------------------------------------------------------- */

static struct ft_wire_worker_state any_worker(struct sample_rng *rng) {
    return (struct ft_wire_worker_state){
        .up = coin(rng),
        .epoch = any_u64(rng),
        .restarts = any_u64(rng),
        .steps = any_u64(rng),
        .step_tokens = any_u64(rng),
        .step_seconds = any_seconds(rng),
        .kv_blocks_total = any_u64(rng),
        .kv_blocks_free = any_u64(rng),
        .kv_blocks_cached = any_u64(rng),
        .sequences = any_u32(rng),
        .resident_bytes = any_u64(rng),
    };
}

static struct ft_wire_stats any_stats(struct sample_rng *rng, struct ft_arena *arena) {
    struct ft_wire_stats m = {.version = any_str(rng, arena),
                              .uptime_seconds = any_seconds(rng),
                              .num_requests_running = any_u32(rng),
                              .num_requests_waiting = any_u32(rng)};
    uint64_t *totals[] = {
        &m.num_requests_finished, &m.num_requests_failed,    &m.num_requests_cancelled,
        &m.prompt_tokens_total,   &m.rounds_total,           &m.generation_tokens_total,
        &m.num_drafts_total,      &m.num_draft_tokens_total, &m.num_accepted_tokens_total,
        &m.residual_draws_total,  &m.plain_steps_total,      &m.nan_rows_total,
        &m.num_preemptions_total};
    double *medians[] = {&m.round_p50_us,      &m.draft_step_p50_us, &m.target_step_p50_us,
                         &m.host_p50_us,       &m.accept_p50_us,     &m.draft_length_mean,
                         &m.believed_plain_us, &m.believed_draft_us, &m.believed_acceptance};
    for (size_t i = 0; i < sizeof totals / sizeof totals[0]; i++)
        *totals[i] = any_u64(rng);
    for (size_t i = 0; i < sizeof medians / sizeof medians[0]; i++)
        *medians[i] = any_seconds(rng);
    m.n_pos = any_count(rng, FT_DRAFT_LEN_MAX);
    for (size_t i = 0; i < m.n_pos; i++)
        m.accepted_per_pos[i] = any_u64(rng);
    m.speculation = any_str(rng, arena);
    m.speculation_reason = any_str(rng, arena);
    m.target = any_worker(rng);
    MAYBE(draft, any_worker(rng));
    return m;
}

static void show_worker(struct ft_buf *text, const struct ft_wire_worker_state *in) {
    NUM(up), NUM(epoch), NUM(restarts), NUM(steps), NUM(step_tokens), REAL(step_seconds);
    NUM(kv_blocks_total), NUM(kv_blocks_free), NUM(kv_blocks_cached), NUM(sequences);
    NUM(resident_bytes);
}

static void show_stats(struct ft_buf *text, const struct ft_wire_stats *in) {
    STR(version), REAL(uptime_seconds), NUM(num_requests_running), NUM(num_requests_waiting);
    NUM(num_requests_finished), NUM(num_requests_failed), NUM(num_requests_cancelled);
    NUM(prompt_tokens_total), NUM(generation_tokens_total), NUM(rounds_total);
    NUM(num_drafts_total), NUM(num_draft_tokens_total), NUM(num_accepted_tokens_total);
    show_u64s(text, "accepted_per_pos", in->accepted_per_pos, in->n_pos);
    REAL(draft_length_mean), REAL(believed_plain_us), REAL(believed_draft_us);
    REAL(believed_acceptance);
    NUM(residual_draws_total), NUM(plain_steps_total), NUM(nan_rows_total),
        NUM(num_preemptions_total);
    STR(speculation), STR(speculation_reason), REAL(round_p50_us), REAL(draft_step_p50_us);
    REAL(target_step_p50_us), REAL(host_p50_us), REAL(accept_p50_us);
    show_worker(text, &in->target);
    NUM(has_draft);
    show_worker(text, &in->draft);
}

/* ---- table ---------------------------------------------------------------------------------- */

SAMPLE(describe, ft_wire_describe)
SAMPLE(attach, ft_wire_attach)
SAMPLE(attached, ft_wire_attached)
SAMPLE(release, ft_wire_release)
SAMPLE(worker_stats, ft_wire_worker_stats)
SAMPLE(step, ft_wire_step)
SAMPLE(step_reply, ft_wire_step_reply)
SAMPLE(generate, ft_wire_generate)
SAMPLE(generated, ft_wire_generated)
SAMPLE(tokenize, ft_wire_tokenize)
SAMPLE(ids, ft_wire_ids)
SAMPLE(detokenize, ft_wire_detokenize)
SAMPLE(text, ft_wire_text)
SAMPLE(model_info, ft_wire_model_info)
SAMPLE(stats, ft_wire_stats)

#define ROW(message)                                                                               \
    { #message, make_##message, read_##message }
const struct wire_sample wire_samples[] = {
    ROW(describe), ROW(attach),     ROW(attached), ROW(release),    ROW(worker_stats),
    ROW(step),     ROW(step_reply), ROW(generate), ROW(generated),  ROW(tokenize),
    ROW(ids),      ROW(detokenize), ROW(text),     ROW(model_info), ROW(stats),
};
const size_t n_wire_samples = sizeof wire_samples / sizeof wire_samples[0];
