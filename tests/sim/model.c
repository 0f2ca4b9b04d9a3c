#include "sim/model.h"

#include <math.h>
#include <string.h>

#include "sim/net.h"
#include "support/hash_model.h"

static struct sim_step_log g_log;

uint64_t sim_chain(uint64_t history, int32_t token) {
    return hash_model_chain(history, token);
}

int32_t sim_next(uint64_t history) {
    return hash_model_mix(history + 7) % 80 == 0 ? SIM_EOS
                                                 : (int32_t)(hash_model_mix(history + 11) % 256);
}

/* Agrees with the target four times out of five. */
static int32_t draft_next(uint64_t history) {
    return hash_model_mix(history + 13) % 5 == 0 ? (int32_t)(hash_model_mix(history + 17) % 256)
                                                 : sim_next(history);
}

static void fill_row(uint64_t history, int32_t best, float row[SIM_VOCAB]) {
    for (int32_t i = 0; i < SIM_VOCAB; i += 8) {
        uint64_t bits = hash_model_mix(history + (uint64_t)i);
        for (int32_t j = i; j < i + 8 && j < SIM_VOCAB; j++, bits >>= 8)
            row[j] = history == 0 ? NAN : (float)(bits & 255) * 0x1p-6f;
    }
    if (history == 0)
        return;
    row[best] = 60.0f;
    row[SIM_POISON] = -1000.0f;
}

void sim_row(uint64_t history, float row[SIM_VOCAB]) {
    fill_row(history, sim_next(history), row);
}

struct sim_step_log sim_target_log(void) {
    return g_log;
}

void sim_model_reset(void) {
    g_log = (struct sim_step_log){0};
}

static bool is_draft(const struct ft_model_opts *opts) {
    return strcmp(opts->device, "sim-draft") == 0;
}

static void row(const struct ft_model_opts *opts, uint64_t history, float *out) {
    fill_row(history, is_draft(opts) ? draft_next(history) : sim_next(history), out);
}

static bool stepped(const struct ft_model_opts *opts, int32_t n_seqs, int64_t n_tokens) {
    (void)n_seqs;
    if (!is_draft(opts)) {
        g_log.n_steps++;
        g_log.n_tokens = n_tokens;
    }
    net_spend_ns(is_draft(opts) ? 20000 + 1000 * n_tokens : 100000 + 4000 * n_tokens);
    return true;
}

const struct hash_model g_hash_model = {
    .backend = "sim",
    .vocab = SIM_VOCAB,
    .len_max = SIM_LEN_MAX,
    .block_bytes = SIM_BLOCK_BYTES,
    .poison = SIM_POISON,
    .row = row,
    .stepped = stepped,
};
