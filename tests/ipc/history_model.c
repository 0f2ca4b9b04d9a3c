#include "ipc/history_model.h"

#include <math.h>
#include <stdatomic.h>
#include <unistd.h>

#include "support/hash_model.h"

static bool g_fail_next;
static int g_n_forward, g_last_n_seqs;
static atomic_bool g_holds;
static atomic_int g_n_loading, g_n_to_end;

static void row_of(uint64_t h, float *row) {
    for (int32_t i = 0; i < HISTORY_VOCAB; i++)
        row[i] = h == 0 ? NAN : (float)(hash_model_mix(h + (uint64_t)i) >> 40) * 0x1p-21f - 4.0f;
    if (h != 0)
        row[HISTORY_POISON] = -60.0f; /* never chosen, unless a bias wants it */
}

void history_row(const int32_t *tokens, int32_t n, float row[HISTORY_VOCAB]) {
    uint64_t h = 1;
    for (int32_t i = 0; i < n; i++)
        h = hash_model_chain(h, tokens[i]);
    row_of(h, row);
}

int32_t history_argmax(const int32_t *tokens, int32_t n) {
    float row[HISTORY_VOCAB];
    history_row(tokens, n, row);
    int32_t best = 0;
    for (int32_t i = 1; i < HISTORY_VOCAB; i++)
        if (row[i] > row[best])
            best = i;
    return best;
}

void history_fail_next(void) {
    g_fail_next = true;
}

void history_hold_loads(void) {
    atomic_store(&g_holds, true);
}

bool history_end_load(void) {
    if (atomic_load(&g_n_loading) == 0)
        return false;
    int n_before = atomic_load(&g_n_loading);
    atomic_fetch_add(&g_n_to_end, 1);
    while (atomic_load(&g_n_loading) == n_before)
        usleep(1000);
    return true;
}

static void loading(void) {
    if (!atomic_load(&g_holds))
        return;
    atomic_fetch_add(&g_n_loading, 1);
    for (int n = 0; n == 0 || !atomic_compare_exchange_strong(&g_n_to_end, &n, n - 1);) {
        usleep(1000);
        n = atomic_load(&g_n_to_end);
    }
    atomic_fetch_sub(&g_n_loading, 1);
}

int history_n_forward(void) {
    return g_n_forward;
}

int history_last_n_seqs(void) {
    return g_last_n_seqs;
}

static void row(const struct ft_model_opts *opts, uint64_t history, float *out) {
    (void)opts;
    row_of(history, out);
}

static bool stepped(const struct ft_model_opts *opts, int32_t n_seqs, int64_t n_tokens) {
    (void)opts;
    (void)n_tokens;
    bool fails = g_fail_next;
    g_n_forward++;
    g_last_n_seqs = n_seqs;
    g_fail_next = false;
    return !fails;
}

const struct hash_model g_hash_model = {
    .backend = "history",
    .vocab = HISTORY_VOCAB,
    .len_max = HISTORY_LEN_MAX,
    .block_bytes = HISTORY_BLOCK_BYTES,
    .poison = HISTORY_POISON,
    .row = row,
    .stepped = stepped,
    .loading = loading,
};
