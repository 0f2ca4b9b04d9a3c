/* choose_cut: where top-k and top-p cut a row that a cluster of blocks holds in its registers.
 * Values that can be at a cut are few, as a rule: they are sent to every block, and each block
 * finds the cut among them by itself. Where they are too many the cluster selects together.
 * Owns:    nothing.
 * Runs in: choose.cu only.
 * Never:   differs from ft_select_cut of spec by a bit: weights are whole numbers, whose sums are
 *          the same in any order. */
#ifndef FT_GPU_KERNELS_CHOOSE_CUT_CUH
#define FT_GPU_KERNELS_CHOOSE_CUT_CUH

#include "common/gpu/kernels/choose.cuh"

/* Bits whose unsigned order is the order of floats; both zeros give the same. */
static __device__ __forceinline__ uint32_t key_of(float x) {
    uint32_t bits = __float_as_uint(x + 0.0f);
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

/* As fixed_point of select.c. */
static __device__ __forceinline__ uint64_t fixed_point(double x) {
    return (uint64_t)__dadd_rn(__dmul_rn(x, WEIGHT_SCALE), 0.5);
}
static __device__ __forceinline__ uint64_t weight_of(float x, bool by_value) {
    return by_value ? fixed_point((double)x) : 1;
}

static __device__ __forceinline__ float value_of(uint32_t key) {
    return __uint_as_float(key >> 31 != 0 ? key & 0x7FFFFFFFu : ~key);
}

/* Sum of lanes 0 .. lane. */
static __device__ __forceinline__ uint64_t upto_lane(const struct team &t, uint64_t sum) {
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
        uint64_t other = __shfl_up_sync(0xFFFFFFFFu, sum, i);
        sum += t.lane >= i ? other : 0;
    }
    return sum;
}

/* Highest bucket at which the weight, summed from the top, reaches want; the lowest with a weight
 * when none does. What lies above is taken off. weights is NULL where each value weighs 1. The
 * first threads have PART buckets each. Ends with a barrier of the block. */
static __device__ __forceinline__ struct found find_bucket(const struct team &t, struct shared &s,
                                                           const unsigned *counts,
                                                           const unsigned long long *weights,
                                                           uint64_t want) {
    const int PART = BUCKETS / THREADS_MIN;
    int32_t high = BUCKETS - 1 - PART * (int32_t)threadIdx.x;
    uint64_t own[PART], sum = 0;
#pragma unroll
    for (int i = 0; i < PART; i++) {
        own[i] = high < 0 ? 0 : weights != NULL ? weights[high - i] : counts[high - i];
        sum += own[i];
    }
    uint64_t upto = upto_lane(t, sum);
    if (t.lane == 31)
        s.warp_weights[t.warp] = upto;
    __syncthreads();
    uint64_t warps = upto_lane(t, t.lane < t.n_warps ? s.warp_weights[t.lane] : 0);
    uint64_t total = __shfl_sync(0xFFFFFFFFu, warps, 31);
    uint64_t before = __shfl_sync(0xFFFFFFFFu, warps, t.warp > 0 ? t.warp - 1 : 0);
    before = (t.warp > 0 ? before : 0) + upto - sum;
#pragma unroll
    for (int i = 0; i < PART; i++) {
        bool is_met = before + own[i] >= want && (before < want || before == 0);
        bool is_last = total < want && before + own[i] == total;
        /* Rounding left a little unreached: no weight above the lowest may be asked for again. */
        if (own[i] > 0 && (is_met || is_last))
            s.found = {high - i, counts[high - i], is_last ? own[i] : want - before};
        before += own[i];
    }
    __syncthreads();
    return s.found;
}

/* The same among n gathered values: the key of the largest v such that those >= v weigh at least
 * want; of the smallest with a weight when they never do. PARTS threads have a value each time, and
 * compare it with a share of the others. */
static __device__ __forceinline__ uint32_t find_value(const struct team &t, struct shared &s,
                                                      int32_t n, uint64_t want, bool by_value) {
    const int32_t PARTS = 8;
    for (int32_t i = threadIdx.x; by_value && i < n; i += t.n_threads)
        s.own_weights[i] = weight_of(value_of(s.gathered[i]), true);
    if (threadIdx.x == 0) {
        s.best_key = 0;
        s.least_key = 0xFFFFFFFFu;
    }
    __syncthreads();
    for (int32_t first = 0; first < n; first += t.n_threads / PARTS) {
        int32_t i = first + (int32_t)threadIdx.x / PARTS;
        uint32_t key = i < n ? s.gathered[i] : 0;
        uint32_t count = 0;
        uint64_t weight = 0;
#pragma unroll 4
        for (int32_t j = threadIdx.x % PARTS; j < n; j += PARTS)
            if (s.gathered[j] >= key && by_value)
                weight += s.own_weights[j];
            else if (s.gathered[j] >= key)
                count++;
#pragma unroll
        for (int width = 1; width < PARTS; width *= 2)
            if (by_value)
                weight += __shfl_xor_sync(0xFFFFFFFFu, weight, width);
            else
                count += __shfl_xor_sync(0xFFFFFFFFu, count, width);
        weight += count;
        bool is_weighty = i < n && (!by_value || s.own_weights[i] > 0);
        uint32_t best = __reduce_max_sync(0xFFFFFFFFu, i < n && weight >= want ? key : 0);
        uint32_t least = __reduce_min_sync(0xFFFFFFFFu, is_weighty ? key : 0xFFFFFFFFu);
        if (t.lane == 0) {
            atomicMax(&s.best_key, best);
            atomicMin(&s.least_key, least);
        }
    }
    __syncthreads();
    return s.best_key != 0 ? s.best_key : s.least_key;
}

/* Which values a level of a selection looks at. */
struct cut_level {
    uint32_t prefix, prefix_mask, mask;
    int at;
};

static __device__ __forceinline__ void begin_level(struct cut_level &l, int level) {
    l.at = level == 0 ? 21 : level == 1 ? 10 : 0;
    l.mask = level == 2 ? 0x3FF : 0x7FF;
}
static __device__ __forceinline__ void end_level(struct cut_level &l, int32_t bucket) {
    l.prefix |= (uint32_t)bucket << l.at;
    l.prefix_mask |= l.mask << l.at;
}
static __device__ __forceinline__ bool is_in(const struct cut_level &l, uint32_t key) {
    return (key & l.prefix_mask) == l.prefix;
}

static __device__ __forceinline__ void clear_own(const struct team &t, struct shared &s) {
    for (int32_t i = threadIdx.x; i < BUCKETS; i += t.n_threads) {
        s.own_weights[i] = 0;
        s.own_counts[i] = 0;
    }
}
static __device__ __forceinline__ void add_own(struct shared &s, uint32_t key,
                                               const struct cut_level &l, bool by_value) {
    uint32_t bucket = key >> l.at & l.mask;
    atomicAdd(&s.own_counts[bucket], 1u);
    if (by_value)
        atomicAdd(&s.own_weights[bucket], (unsigned long long)weight_of(value_of(key), true));
}

/* ---- among values that every block has */

/* This thread's values whose bits are set in mine go to s.gathered of every block. Returns how many
 * the cluster has gathered; -1: a block has more than there is room for. s.n_own is 0 before and
 * after; the cluster syncs once more before the next time. */
static __device__ __forceinline__ int32_t gather(const struct team &t, struct shared &s,
                                                 const float x[VALUES], uint32_t mine) {
    if (mine != 0) {
        int32_t at = (int32_t)atomicAdd(&s.n_own, (unsigned)__popc(mine));
#pragma unroll 1
        for (; mine != 0 && at < SHARE_MAX; mine &= mine - 1, at++) {
            uint32_t key = key_of(pick(x, __ffs((int)mine) - 1));
            int32_t to = t.rank * SHARE_MAX + at;
#pragma unroll 1
            for (int32_t r = 0; r < t.n_blocks; r++)
                t.cluster.map_shared_rank(&s, r)->shared_keys[to] = key;
        }
    }
    __syncthreads();
    if ((int32_t)threadIdx.x < t.n_blocks)
        t.cluster.map_shared_rank(&s, threadIdx.x)->shares[t.rank] = (int32_t)s.n_own;
    t.cluster.sync();
    int32_t share = t.lane < t.n_blocks ? s.shares[t.lane] : 0, upto = share;
    bool is_room = __all_sync(0xFFFFFFFFu, share <= SHARE_MAX);
#pragma unroll
    for (int i = 1; i < CLUSTER_MAX; i *= 2) {
        int32_t other = __shfl_up_sync(0xFFFFFFFFu, upto, i);
        upto += t.lane >= i ? other : 0;
    }
    int32_t n = __shfl_sync(0xFFFFFFFFu, upto, CLUSTER_MAX - 1);
#pragma unroll 1
    for (int32_t r = t.warp; r < t.n_blocks && is_room; r += t.n_warps) { /* a warp has a share */
        int32_t n_in = __shfl_sync(0xFFFFFFFFu, share, r);
        int32_t to = __shfl_sync(0xFFFFFFFFu, upto, r) - n_in;
        for (int32_t i = t.lane; i < n_in; i += 32)
            s.gathered[to + i] = s.shared_keys[r * SHARE_MAX + i];
    }
    if (threadIdx.x == 0)
        s.n_own = 0;
    __syncthreads();
    return is_room ? n : -1;
}

/* The key at a cut of n > 0 gathered values, which are lost. */
static __device__ __forceinline__ uint32_t select_gathered(const struct team &t, struct shared &s,
                                                           int32_t n, uint64_t want,
                                                           bool by_value) {
    struct cut_level l = {0, 0, 0, 0};
#pragma unroll 1
    for (int level = 0; level < 3 && n > PAIRS_MAX; level++) {
        begin_level(l, level);
        clear_own(t, s);
        __syncthreads();
        uint32_t keys[GATHERED / THREADS_MIN];
#pragma unroll
        for (int j = 0; j < GATHERED / THREADS_MIN; j++) {
            int32_t i = (int32_t)threadIdx.x + j * t.n_threads;
            keys[j] = i < n ? s.gathered[i] : 0;
            if (i < n)
                add_own(s, keys[j], l, by_value);
        }
        __syncthreads();
        struct found found = find_bucket(t, s, s.own_counts, by_value ? s.own_weights : NULL, want);
        want = found.want;
        end_level(l, found.bucket);
#pragma unroll
        for (int j = 0; j < GATHERED / THREADS_MIN; j++)
            if ((int32_t)threadIdx.x + j * t.n_threads < n && is_in(l, keys[j]))
                s.gathered[atomicAdd(&s.n_own, 1u)] = keys[j];
        n = (int32_t)found.count;
        __syncthreads();
        if (threadIdx.x == 0)
            s.n_own = 0;
    }
    /* Equal in all bits: no need to compare. */
    return n > PAIRS_MAX ? l.prefix : find_value(t, s, n, want, by_value);
}

/* ---- among all values */

/* Weights by bucket, of all blocks, in every block. */
static __device__ __forceinline__ void fill_buckets(const struct team &t, struct shared &s,
                                                    const float x[VALUES], float least,
                                                    const struct cut_level &l, bool by_value) {
    clear_own(t, s);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        if (x[j] >= least && is_in(l, key_of(x[j])))
            add_own(s, key_of(x[j]), l, by_value);
    __syncthreads();
    for (int32_t i = threadIdx.x; i < BUCKETS; i += t.n_threads) {
        if (s.own_counts[i] == 0)
            continue;
        for (int32_t r = 0; r < t.n_blocks; r++) {
            struct shared *to = t.cluster.map_shared_rank(&s, r);
            atomicAdd(&to->counts[i], s.own_counts[i]);
            if (by_value)
                atomicAdd(&to->weights[i], s.own_weights[i]);
        }
    }
    t.cluster.sync();
}

static __device__ __forceinline__ void clear_buckets(const struct team &t, struct shared &s) {
    for (int32_t i = threadIdx.x; i < BUCKETS; i += t.n_threads) {
        s.weights[i] = 0;
        s.counts[i] = 0;
    }
}

/* The key at a cut, as ft_select_cut of spec finds it, among the values >= least.
 * by_value: each weighs itself; else 1. Buckets are clear before and after; others fill them once
 * the cluster has synced. */
static __device__ __forceinline__ uint32_t select_from_all(const struct team &t, struct shared &s,
                                                           const float x[VALUES], float least,
                                                           uint64_t want, bool by_value) {
    struct cut_level l = {0, 0, 0, 0};
#pragma unroll 1
    for (int level = 0; level < 3; level++) {
        begin_level(l, level);
        fill_buckets(t, s, x, least, l, by_value);
        struct found found = find_bucket(t, s, s.counts, by_value ? s.weights : NULL, want);
        want = found.want;
        end_level(l, found.bucket);
        clear_buckets(t, s);
        if (level == 2)
            break;
        if (found.count <= PAIRS_MAX) {
            uint32_t mine = 0;
#pragma unroll
            for (int j = 0; j < VALUES; j++)
                mine |= (uint32_t)(x[j] >= least && is_in(l, key_of(x[j]))) << j;
            int32_t n = gather(t, s, x, mine);
            return find_value(t, s, n, want, by_value);
        }
        t.cluster.sync();
    }
    return l.prefix;
}

/* Bits of the values >= least. */
static __device__ __forceinline__ uint32_t reaching(const float x[VALUES], float least) {
    uint32_t mine = 0;
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        mine |= (uint32_t)(x[j] >= least) << j;
    return mine;
}

#endif
