/* choose_cut: where top-k and top-p cut a row that a cluster of blocks holds in its registers.
 * Values that can be at a cut are few, as a rule: they are sent to every block, and each block
 * finds the cut among them by itself. Where they are too many the cluster selects together.
 * Owns:    nothing.
 * Runs in: choose.cu only.
 * Never:   differs from ft_select_cut of spec by a bit: weights are whole numbers, whose sums are
 *          the same in any order. */
#ifndef FT_GPU_KERNELS_CHOOSE_CUT_CUH
#define FT_GPU_KERNELS_CHOOSE_CUT_CUH

#include <cooperative_groups.h>

#include "common/gpu/kernels/choose.cuh"

namespace cg = cooperative_groups;

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
static __device__ __forceinline__ uint64_t upto_lane(uint64_t sum) {
    int32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
        uint64_t other = __shfl_up_sync(0xFFFFFFFFu, sum, i);
        sum += lane >= i ? other : 0;
    }
    return sum;
}

/* Highest bucket at which the weight, summed from the top, reaches want; the lowest with a weight
 * when none does. What lies above is taken off. weights is NULL where each value weighs 1. A thread
 * has two buckets. Ends with a barrier of the block. */
static __device__ __forceinline__ struct found find_bucket(struct shared &s, const unsigned *counts,
                                                           const unsigned long long *weights,
                                                           uint64_t want) {
    int32_t high = BUCKETS - 1 - 2 * (int32_t)threadIdx.x, warp = threadIdx.x / 32;
    uint64_t own[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        own[i] = weights != NULL ? weights[high - i] : counts[high - i];
    uint64_t upto = upto_lane(own[0] + own[1]);
    if (threadIdx.x % 32 == 31)
        s.warp_weights[warp] = upto;
    __syncthreads();
    uint64_t warps = upto_lane(s.warp_weights[threadIdx.x % 32]);
    uint64_t total = __shfl_sync(0xFFFFFFFFu, warps, 31);
    uint64_t before = __shfl_sync(0xFFFFFFFFu, warps, warp > 0 ? warp - 1 : 0);
    before = (warp > 0 ? before : 0) + upto - own[0] - own[1];
#pragma unroll
    for (int i = 0; i < 2; i++) {
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
static __device__ __forceinline__ uint32_t find_value(struct shared &s, int32_t n, uint64_t want,
                                                      bool by_value) {
    const int32_t PARTS = 8, AT_ONCE = THREADS / PARTS;
    for (int32_t i = threadIdx.x; by_value && i < n; i += THREADS)
        s.own_weights[i] = weight_of(value_of(s.gathered[i]), true);
    if (threadIdx.x == 0) {
        s.best_key = 0;
        s.least_key = 0xFFFFFFFFu;
    }
    __syncthreads();
    for (int32_t first = 0; first < n; first += AT_ONCE) {
        int32_t i = first + (int32_t)threadIdx.x / PARTS;
        uint32_t key = i < n ? s.gathered[i] : 0;
        uint64_t weight = 0;
#pragma unroll 4
        for (int32_t j = threadIdx.x % PARTS; j < n; j += PARTS)
            weight += s.gathered[j] < key ? 0 : by_value ? s.own_weights[j] : 1;
#pragma unroll
        for (int width = 1; width < PARTS; width *= 2)
            weight += __shfl_xor_sync(0xFFFFFFFFu, weight, width);
        bool is_weighty = i < n && (!by_value || s.own_weights[i] > 0);
        uint32_t best = __reduce_max_sync(0xFFFFFFFFu, i < n && weight >= want ? key : 0);
        uint32_t least = __reduce_min_sync(0xFFFFFFFFu, is_weighty ? key : 0xFFFFFFFFu);
        if (threadIdx.x % 32 == 0) {
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

static __device__ __forceinline__ void clear_own(struct shared &s) {
    for (int32_t i = threadIdx.x; i < BUCKETS; i += THREADS) {
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
static __device__ __forceinline__ int32_t gather(cg::cluster_group &cluster, struct shared &s,
                                                 const float x[VALUES], uint32_t mine) {
    int32_t n_blocks = (int32_t)cluster.num_blocks(), rank = (int32_t)cluster.block_rank();
    if (mine != 0) {
        int32_t at = (int32_t)atomicAdd(&s.n_own, (unsigned)__popc(mine));
#pragma unroll
        for (int j = 0; j < VALUES; j++) {
            if ((mine >> j & 1) == 0)
                continue;
            for (int32_t r = 0; r < n_blocks && at < SHARE_MAX; r++)
                cluster.map_shared_rank(&s, r)->shared_keys[rank * SHARE_MAX + at] = key_of(x[j]);
            at++;
        }
    }
    __syncthreads();
    if ((int32_t)threadIdx.x < n_blocks)
        cluster.map_shared_rank(&s, threadIdx.x)->shares[rank] = (int32_t)s.n_own;
    cluster.sync();
    int32_t n = 0;
    bool is_room = true;
    for (int32_t r = 0; r < n_blocks; r++) {
        int32_t share = s.shares[r];
        is_room = is_room && share <= SHARE_MAX;
        for (int32_t i = threadIdx.x; is_room && i < share; i += THREADS)
            s.gathered[n + i] = s.shared_keys[r * SHARE_MAX + i];
        n += share;
    }
    if (threadIdx.x == 0)
        s.n_own = 0;
    __syncthreads();
    return is_room ? n : -1;
}

/* The key at a cut of n > 0 gathered values, which are lost. */
static __device__ __forceinline__ uint32_t select_gathered(struct shared &s, int32_t n,
                                                           uint64_t want, bool by_value) {
    struct cut_level l = {0, 0, 0, 0};
    for (int level = 0; level < 3 && n > PAIRS_MAX; level++) {
        begin_level(l, level);
        clear_own(s);
        __syncthreads();
        uint32_t keys[GATHERED / THREADS];
#pragma unroll
        for (int j = 0; j < GATHERED / THREADS; j++) {
            int32_t i = (int32_t)threadIdx.x + j * THREADS;
            keys[j] = i < n ? s.gathered[i] : 0;
            if (i < n)
                add_own(s, keys[j], l, by_value);
        }
        __syncthreads();
        struct found found = find_bucket(s, s.own_counts, by_value ? s.own_weights : NULL, want);
        want = found.want;
        end_level(l, found.bucket);
#pragma unroll
        for (int j = 0; j < GATHERED / THREADS; j++)
            if ((int32_t)threadIdx.x + j * THREADS < n && is_in(l, keys[j]))
                s.gathered[atomicAdd(&s.n_own, 1u)] = keys[j];
        n = (int32_t)found.count;
        __syncthreads();
        if (threadIdx.x == 0)
            s.n_own = 0;
    }
    /* Equal in all bits: no need to compare. */
    return n > PAIRS_MAX ? l.prefix : find_value(s, n, want, by_value);
}

/* ---- among all values */

/* Weights by bucket, of all blocks, in every block. */
static __device__ __forceinline__ void fill_buckets(cg::cluster_group &cluster, struct shared &s,
                                                    const float x[VALUES], float least,
                                                    const struct cut_level &l, bool by_value) {
    clear_own(s);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        if (x[j] >= least && is_in(l, key_of(x[j])))
            add_own(s, key_of(x[j]), l, by_value);
    __syncthreads();
    for (int32_t i = threadIdx.x; i < BUCKETS; i += THREADS) {
        if (s.own_counts[i] == 0)
            continue;
        for (unsigned r = 0; r < cluster.num_blocks(); r++) {
            struct shared *to = cluster.map_shared_rank(&s, r);
            atomicAdd(&to->counts[i], s.own_counts[i]);
            if (by_value)
                atomicAdd(&to->weights[i], s.own_weights[i]);
        }
    }
    cluster.sync();
}

static __device__ __forceinline__ void clear_buckets(struct shared &s) {
    for (int32_t i = threadIdx.x; i < BUCKETS; i += THREADS) {
        s.weights[i] = 0;
        s.counts[i] = 0;
    }
}

/* The key at a cut, as ft_select_cut of spec finds it, among the values >= least.
 * by_value: each weighs itself; else 1. Buckets are clear before and after; others fill them once
 * the cluster has synced. */
static __device__ __forceinline__ uint32_t select_from_all(cg::cluster_group &cluster,
                                                           struct shared &s,
                                                           const float x[VALUES], float least,
                                                           uint64_t want, bool by_value) {
    struct cut_level l = {0, 0, 0, 0};
    for (int level = 0; level < 3; level++) {
        begin_level(l, level);
        fill_buckets(cluster, s, x, least, l, by_value);
        struct found found = find_bucket(s, s.counts, by_value ? s.weights : NULL, want);
        want = found.want;
        end_level(l, found.bucket);
        clear_buckets(s);
        if (level == 2)
            break;
        if (found.count <= PAIRS_MAX) {
            uint32_t mine = 0;
#pragma unroll
            for (int j = 0; j < VALUES; j++)
                mine |= (uint32_t)(x[j] >= least && is_in(l, key_of(x[j]))) << j;
            int32_t n = gather(cluster, s, x, mine);
            return find_value(s, n, want, by_value);
        }
        cluster.sync();
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
