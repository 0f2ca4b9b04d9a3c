/* choose_load: a row of logits, edited, in the registers of the threads that have it.
 * Owns:    nothing.
 * Runs in: choose.cu only.
 * Never:   hides what is no logit. */
#ifndef FT_GPU_KERNELS_CHOOSE_LOAD_CUH
#define FT_GPU_KERNELS_CHOOSE_LOAD_CUH

#include "common/gpu/kernels/choose.cuh"

static __device__ __forceinline__ float penalise(const struct ft_choice_row &row, float logit,
                                                 int32_t n_output) {
    logit = logit > 0.0f ? logit / row.repetition : logit * row.repetition;
    if (n_output > 0)
        logit = logit - (row.frequency * (float)n_output + row.presence);
    return logit;
}

/* Start a block's part of n floats on its way into shared memory; what is behind them becomes 0. */
static __device__ __forceinline__ void fetch_slice(const struct team &t, float *slice,
                                                   const float *from, int32_t n) {
    int32_t left = n - t.rank * t.slice;
    left = left < 0 ? 0 : left < t.slice ? left : t.slice;
    from += left > 0 ? t.rank * t.slice : 0;
    if ((uintptr_t)from % 16 == 0) {
#pragma unroll
        for (int j = 0; j < VALUES / 4; j++) {
            int32_t i = ((int32_t)threadIdx.x + j * t.n_threads) * 4, n_in = left - i;
            n_in = n_in < 0 ? 0 : n_in < 4 ? n_in : 4;
            k_fetch_part(slice + slot_of(i), n_in > 0 ? from + i : from, n_in * 4);
        }
        return;
    }
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < t.slice; i += t.n_threads)
        slice[slot_of(i)] = i < left ? __ldcg(from + i) : 0.0f;
}

/* The slot of a token in this block's slice; -1: with another block. */
static __device__ __forceinline__ int32_t place_of(const struct team &t, int32_t id,
                                                   int32_t n_vocab) {
    int32_t at = id - t.rank * t.slice;
    return id < n_vocab && at >= 0 && at < t.slice ? slot_of(at) : -1;
}

static __device__ __forceinline__ int32_t occurrences(const struct ft_choice_row &row,
                                                      const int32_t *drafted, int32_t id) {
    int32_t n = 0;
    for (int32_t j = 0; j < row.n_drafted; j++)
        n += drafted[j] == id;
    return n;
}

static __device__ __forceinline__ int4 load_edit(const struct lists &lists,
                                                 const struct ft_choice_row &row, int32_t i) {
    return listed(lists, (const int4 *)(lists.edits + row.first_edit + i));
}

/* Drafted tokens count as output. Most are in no edit: those are marked in is_edited by the threads
 * that meet them, and the rest is changed afterwards. raw: this thread's first edit. */
static __device__ __forceinline__ void edit_slice(const struct team &t, const struct lists &lists,
                                                  const struct ft_choice_row &row, struct shared &s,
                                                  int4 raw) {
    for (int32_t i = threadIdx.x; i < row.n_edits; i += t.n_threads) {
        if (i >= t.n_threads)
            raw = load_edit(lists, row, i);
        struct ft_choice_edit e = {raw.x, __int_as_float(raw.y), raw.z, raw.w};
        int32_t at = place_of(t, e.id, row.n_vocab);
        if (at < 0)
            continue;
        int32_t n = row.has_penalties ? occurrences(row, s.drafted, e.id) : 0;
        float x = s.slice[at] + e.bias;
        if (row.has_penalties && (e.is_counted || n > 0))
            x = penalise(row, x, e.n_output + n);
        s.slice[at] = x;
        for (int32_t j = 0; n > 0 && j < row.n_drafted; j++)
            if (s.drafted[j] == e.id)
                s.is_edited[j] = 1;
    }
    __syncthreads();
    int32_t j = threadIdx.x;
    if (row.has_penalties && j < row.n_drafted && !s.is_edited[j]) {
        int32_t id = s.drafted[j], at = place_of(t, id, row.n_vocab);
        bool is_first = true;
        for (int32_t i = 0; i < j; i++)
            is_first = is_first && s.drafted[i] != id;
        if (at >= 0 && is_first)
            s.slice[at] = penalise(row, s.slice[at], occurrences(row, s.drafted, id));
    }
    __syncthreads();
}

static __device__ __forceinline__ void mask_slice(const struct team &t, const struct lists &lists,
                                                  const struct ft_choice_row &row,
                                                  struct shared &s) {
    const int32_t *banned = lists.ids + row.first_banned, *allowed = lists.ids + row.first_allowed;
    for (int32_t i = threadIdx.x; i < row.n_banned; i += t.n_threads) {
        int32_t at = place_of(t, listed(lists, banned + i), row.n_vocab);
        if (at >= 0)
            s.slice[at] = -INFINITY;
    }
    if (row.n_allowed == 0)
        return;
    for (int32_t i = threadIdx.x; i < t.slice / 32; i += t.n_threads)
        s.is_allowed[i] = 0;
    __syncthreads();
    for (int32_t i = threadIdx.x; i < row.n_allowed; i += t.n_threads) {
        int32_t id = listed(lists, allowed + i), at = id & (t.slice - 1);
        if (place_of(t, id, row.n_vocab) >= 0)
            atomicOr(&s.is_allowed[at / 32], 1u << at % 32);
    }
    __syncthreads();
    for (int32_t i = threadIdx.x; i < t.slice; i += t.n_threads)
        if ((s.is_allowed[i / 32] >> i % 32 & 1) == 0)
            s.slice[slot_of(i)] = -INFINITY;
}

/* This thread's values; what is behind the row has no chance. Returns whether one is no logit. */
static __device__ __forceinline__ bool read_slice(const struct team &t, const struct shared &s,
                                                  float x[VALUES]) {
    bool is_bad = false;
    int32_t n_left = s.row.n_vocab - id_of(t, 0);
#pragma unroll
    for (int j = 0; j < VALUES; j++) {
        x[j] = j * LANES < n_left ? s.slice[own_slot(j)] : -INFINITY;
        is_bad |= !(x[j] < INFINITY);
    }
    return is_bad;
}

/* This thread's values, edited; q of a draft is on its way. Returns whether a logit is none. */
static __device__ __forceinline__ bool load_row(const struct team &t, const struct lists &lists,
                                                struct shared &s, float x[VALUES]) {
    const struct ft_choice_row &row = s.row;
    int4 raw = make_int4(0, 0, 0, 0);
    int32_t drafted = 0;
    bool is_masked = row.n_banned > 0 || row.n_allowed > 0, is_bad = false;
    if ((int32_t)threadIdx.x < row.n_drafted)
        drafted = listed(lists, shifted(row.drafted, lists.shift) + threadIdx.x);
    if ((int32_t)threadIdx.x < row.n_edits)
        raw = load_edit(lists, row, threadIdx.x);
    fetch_slice(t, s.slice, row.logits, row.n_vocab);
    if ((int32_t)threadIdx.x < row.n_drafted) {
        s.drafted[threadIdx.x] = drafted;
        s.is_edited[threadIdx.x] = 0;
    }
    k_fetch_wait();
    __syncthreads();
    if (is_masked) { /* a mask may not hide what is no logit */
        is_bad = read_slice(t, s, x);
        __syncthreads();
    }
    if (row.n_edits > 0 || (row.has_penalties && row.n_drafted > 0))
        edit_slice(t, lists, row, s, raw);
    if (is_masked) {
        mask_slice(t, lists, row, s);
        __syncthreads();
    }
    is_bad |= read_slice(t, s, x);
    if (row.kind == FT_CHOICE_SPECULATE && row.q != NULL) {
        fetch_slice(t, s.q, row.q, row.n_q);
        if (threadIdx.x == 0 && (row.draft < 0 || row.draft >= row.n_q))
            s.q_draft = 0.0f;
        else if (threadIdx.x == 0)
            k_fetch_word(&s.q_draft, row.q + row.draft);
    }
    return is_bad;
}

#endif
