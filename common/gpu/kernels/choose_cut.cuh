/* choose_cut: where top-k and top-p cut a row that a cluster of blocks holds in its registers.
 * Owns:    nothing.
 * Runs in: choose.cu only.
 * Never:   differs from ft_select_cut of spec by a bit: weights are whole numbers, whose sums are the
 *          same in any order. */
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
 * when none does. What lies above is taken off *want. By the first warp of the cluster's first
 * block: a lane adds up 64 buckets, then the lane that is met goes through its own. */
template <int V>
static __device__ __forceinline__ void find_bucket(struct shared<V> &s, uint64_t want) {
    const int PER_LANE = BUCKETS / 32;
    int32_t lane = threadIdx.x, top = BUCKETS - 1 - lane * PER_LANE;
    uint64_t own = 0;
    for (int i = 0; i < PER_LANE; i++)
        own += s.weights[top - i];
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
    uint64_t left = want - (upto - own);
    int32_t bucket = top;
    for (int i = 0; i < PER_LANE; i++) {
        uint64_t weight = s.weights[top - i];
        if (weight == 0)
            continue;
        bucket = top - i;
        if (is_met && weight >= left)
            break;
        if (is_met)
            left -= weight;
    }
    s.found.bucket = bucket;
    s.found.count = s.counts[bucket];
    /* Rounding left a little unreached: no weight above the lowest may be asked for again. */
    s.found.want = is_met ? left : s.weights[bucket];
}

/* Among the gathered values, in the first block: the largest v such that those >= v weigh at least
 * want; the smallest with a weight when they never do. */
template <int V>
static __device__ __forceinline__ void find_value(struct shared<V> &s, int32_t n, uint64_t want,
                                                  bool by_value) {
    uint32_t best = 0, least = 0xFFFFFFFFu;
    for (int32_t i = threadIdx.x; i < n; i += THREADS) {
        uint32_t key = key_of(s.gathered[i]);
        uint64_t weight = 0;
        for (int32_t j = 0; j < n; j++)
            if (key_of(s.gathered[j]) >= key)
                weight += weight_of(s.gathered[j], by_value);
        if (weight >= want)
            best = max(best, key);
        if (weight_of(s.gathered[i], by_value) > 0)
            least = min(least, key);
    }
    if (threadIdx.x == 0) {
        s.best_key = 0;
        s.least_key = 0xFFFFFFFFu;
    }
    __syncthreads();
    if (best != 0)
        atomicMax(&s.best_key, best);
    if (least != 0xFFFFFFFFu)
        atomicMin(&s.least_key, least);
    __syncthreads();
}

/* The value at a cut, as ft_select_cut of spec finds it, among the values >= least.
 * by_value: each weighs itself; else 1. */
template <int V>
static __device__ __forceinline__ float select_cut(cg::cluster_group &cluster, struct shared<V> &s,
                                                   const float x[V][VALUES], float least,
                                                   uint64_t want, bool by_value) {
    struct shared<V> *first = cluster.map_shared_rank(&s, 0);
    uint32_t prefix = 0, prefix_mask = 0;
    for (int level = 0; level < 3; level++) {
        const int at = level == 0 ? 21 : level == 1 ? 10 : 0;
        const uint32_t mask = level == 2 ? 0x3FF : 0x7FF;
        for (int32_t i = threadIdx.x; i < BUCKETS; i += THREADS) {
            s.weights[i] = 0;
            s.counts[i] = 0;
        }
        if (threadIdx.x == 0)
            s.n_gathered = 0;
        cluster.sync();
#pragma unroll
        for (int v = 0; v < V; v++)
#pragma unroll
            for (int j = 0; j < VALUES; j++) {
                uint32_t key = key_of(x[v][j]);
                if (!(x[v][j] >= least) || (key & prefix_mask) != prefix)
                    continue;
                atomicAdd(&s.counts[key >> at & mask], 1u);
                if (by_value)
                    atomicAdd(&s.weights[key >> at & mask],
                              (unsigned long long)weight_of(x[v][j], by_value));
            }
        __syncthreads();
        if (!by_value)
            for (int32_t i = threadIdx.x; i < BUCKETS; i += THREADS)
                s.weights[i] = s.counts[i];
        __syncthreads();
        if (cluster.block_rank() != 0)
            for (int32_t i = threadIdx.x; i < BUCKETS; i += THREADS)
                if (s.counts[i] != 0) {
                    atomicAdd(&first->counts[i], s.counts[i]);
                    atomicAdd(&first->weights[i], s.weights[i]);
                }
        cluster.sync();
        if (cluster.block_rank() == 0 && threadIdx.x < 32)
            find_bucket<V>(s, want);
        cluster.sync();
        struct found found = first->found;
        prefix |= (uint32_t)found.bucket << at;
        prefix_mask |= mask << at;
        want = found.want;
        if (level == 2 || found.count == 0)
            break;
        if (found.count > GATHERED)
            continue;
#pragma unroll
        for (int v = 0; v < V; v++)
#pragma unroll
            for (int j = 0; j < VALUES; j++)
                if (x[v][j] >= least && (key_of(x[v][j]) & prefix_mask) == prefix)
                    first->gathered[atomicAdd(&first->n_gathered, 1u)] = x[v][j];
        cluster.sync();
        if (cluster.block_rank() == 0)
            find_value<V>(s, (int32_t)found.count, want, by_value);
        cluster.sync();
        uint32_t best = first->best_key, smallest = first->least_key;
        prefix = best != 0 ? best : smallest;
        break;
    }
    cluster.sync(); /* nobody clears what others still read */
    return __uint_as_float(prefix >> 31 != 0 ? prefix & 0x7FFFFFFFu : ~prefix);
}

#endif
