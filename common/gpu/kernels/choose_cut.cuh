/* choose_cut: where top-k and top-p cut a row that a cluster of blocks holds in its registers.
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

/* Highest bucket at which the weight, summed from the top, reaches want; the lowest with a weight
 * when none does. What lies above is taken off. By one warp of each block: a lane adds up 64
 * buckets, then the lane that is met goes through its own. */
static __device__ __forceinline__ void find_bucket(struct shared &s, uint64_t want,
                                                   bool by_value) {
    const int PER_LANE = BUCKETS / 32;
    int32_t lane = threadIdx.x, top = BUCKETS - 1 - lane * PER_LANE;
    uint64_t own = 0;
    for (int i = 0; i < PER_LANE; i++)
        own += by_value ? s.weights[top - i] : s.counts[top - i];
    uint64_t upto = own; /* of lanes 0 .. lane, the highest buckets first */
    for (int i = 1; i < 32; i *= 2) {
        uint64_t other = __shfl_up_sync(0xFFFFFFFFu, upto, i);
        if (lane >= i)
            upto += other;
    }
    uint32_t met = __ballot_sync(0xFFFFFFFFu, own > 0 && upto >= want);
    uint32_t any = __ballot_sync(0xFFFFFFFFu, own > 0);
    bool is_met = met != 0;
    int winner = is_met ? __ffs((int)met) - 1 : any != 0 ? 31 - __clz((int)any) : 0;
    if (lane != winner)
        return;
    uint64_t left = want - (upto - own), last = 0;
    int32_t bucket = top;
    for (int i = 0; i < PER_LANE; i++) {
        uint64_t weight = by_value ? s.weights[top - i] : s.counts[top - i];
        if (weight == 0)
            continue;
        bucket = top - i;
        last = weight;
        if (is_met && weight >= left)
            break;
        if (is_met)
            left -= weight;
    }
    s.found.bucket = bucket;
    s.found.count = s.counts[bucket];
    /* Rounding left a little unreached: no weight above the lowest may be asked for again. */
    s.found.want = is_met ? left : last;
}

static __device__ __forceinline__ float value_of(uint32_t key) {
    return __uint_as_float(key >> 31 != 0 ? key & 0x7FFFFFFFu : ~key);
}

/* The same among n gathered values: the key of the largest v such that those >= v weigh at least
 * want; of the smallest with a weight when they never do. */
static __device__ __forceinline__ uint32_t find_value(struct shared &s, int32_t n,
                                                      uint64_t want, bool by_value) {
    for (int32_t i = threadIdx.x; i < n; i += THREADS)
        s.own_weights[i] = weight_of(value_of(s.gathered[i]), by_value);
    if (threadIdx.x == 0) {
        s.best_key = 0;
        s.least_key = 0xFFFFFFFFu;
    }
    __syncthreads();
    for (int32_t i = threadIdx.x; i < n; i += THREADS) {
        uint32_t key = s.gathered[i];
        uint64_t weight = 0;
#pragma unroll 4
        for (int32_t j = 0; j < n; j++)
            weight += s.gathered[j] >= key ? s.own_weights[j] : 0;
        if (weight >= want)
            atomicMax(&s.best_key, key);
        if (s.own_weights[i] > 0)
            atomicMin(&s.least_key, key);
    }
    __syncthreads();
    return s.best_key != 0 ? s.best_key : s.least_key;
}

/* Which values a level of a selection looks at. */
struct cut_level {
    uint32_t prefix, prefix_mask, mask;
    int at;
};

static __device__ __forceinline__ bool is_in(const struct cut_level &l, float x, float least) {
    return x >= least && (key_of(x) & l.prefix_mask) == l.prefix;
}

/* Weights by bucket, of all blocks, in every block. */
static __device__ __forceinline__ void fill_buckets(cg::cluster_group &cluster, struct shared &s,
                                                    const float x[VALUES], float least,
                                                    const struct cut_level &l, bool by_value) {
    for (int32_t i = threadIdx.x; i < BUCKETS; i += THREADS) {
        s.own_weights[i] = 0;
        s.own_counts[i] = 0;
    }
    __syncthreads();
#pragma unroll
        for (int j = 0; j < VALUES; j++) {
            if (!is_in(l, x[j], least))
                continue;
            uint32_t bucket = key_of(x[j]) >> l.at & l.mask;
            atomicAdd(&s.own_counts[bucket], 1u);
            if (by_value)
                atomicAdd(&s.own_weights[bucket],
                          (unsigned long long)weight_of(x[j], by_value));
        }
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

/* The values of the bucket that was found, in every block. */
static __device__ __forceinline__ void gather(cg::cluster_group &cluster, struct shared &s,
                                              const float x[VALUES], float least,
                                              int32_t bucket, const struct cut_level &l) {
    if (threadIdx.x < cluster.num_blocks())
        s.shares[threadIdx.x] =
            (int32_t)cluster.map_shared_rank(&s, threadIdx.x)->own_counts[bucket];
    if (threadIdx.x == 0)
        s.n_own = 0;
    __syncthreads();
    int32_t first = 0;
    for (int32_t r = 0; r < (int32_t)cluster.block_rank(); r++)
        first += s.shares[r];
#pragma unroll
        for (int j = 0; j < VALUES; j++) {
            if (!is_in(l, x[j], least))
                continue;
            int32_t at = first + (int32_t)atomicAdd(&s.n_own, 1u);
            for (unsigned r = 0; r < cluster.num_blocks(); r++)
                cluster.map_shared_rank(&s, r)->gathered[at] = key_of(x[j]);
        }
    cluster.sync();
}

static __device__ __forceinline__ void clear_buckets(struct shared &s) {
    for (int32_t i = threadIdx.x; i < BUCKETS; i += THREADS) {
        s.weights[i] = 0;
        s.counts[i] = 0;
    }
}

/* The value at a cut, as ft_select_cut of spec finds it, among the values >= least.
 * by_value: each weighs itself; else 1. Buckets are clear before and after; others fill them once
 * the cluster has synced. */
static __device__ __forceinline__ float select_cut(cg::cluster_group &cluster, struct shared &s,
                                                   const float x[VALUES], float least,
                                                   uint64_t want, bool by_value) {
    struct cut_level l = {0, 0, 0, 0};
    for (int level = 0; level < 3; level++) {
        l.at = level == 0 ? 21 : level == 1 ? 10 : 0;
        l.mask = level == 2 ? 0x3FF : 0x7FF;
        fill_buckets(cluster, s, x, least, l, by_value);
        if (threadIdx.x < 32)
            find_bucket(s, want, by_value);
        __syncthreads();
        struct found found = s.found;
        l.prefix |= (uint32_t)found.bucket << l.at;
        l.prefix_mask |= l.mask << l.at;
        want = found.want;
        if (level < 2 && found.count > 0 && found.count <= GATHERED) {
            gather(cluster, s, x, least, found.bucket, l);
            l.prefix = find_value(s, (int32_t)found.count, want, by_value);
            level = 2;
        }
        clear_buckets(s);
        if (level < 2)
            cluster.sync();
    }
    return value_of(l.prefix);
}

#endif
