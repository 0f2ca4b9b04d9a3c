/* choose: what the kernel that decides rows keeps in shared memory, who has which part of a row, and
 * the noise of `coupled`.
 * Owns:    nothing.
 * Runs in: choose.cu and its headers only.
 * Never:   differs from common/spec by a bit. */
#ifndef FT_GPU_KERNELS_CHOOSE_CUH
#define FT_GPU_KERNELS_CHOOSE_CUH

#include <cooperative_groups.h>

#include "common/gpu/kernels/launch.cuh"

namespace cg = cooperative_groups;

#define CLUSTER_MAX 16 /* blocks */
#define CLUSTER_MIN 8
#define THREADS_MAX 1024
#define THREADS_MIN 512
#define WARPS_MAX (THREADS_MAX / 32)
#define LANES 16               /* of a block, as rowmath has them */
#define BLOCK 256              /* tokens */
#define VALUES (BLOCK / LANES) /* of a thread */
#define SLICE_MAX (THREADS_MAX * VALUES)
#define BUCKETS 2048
#define SHARE_MAX 256 /* values of a block that are sent to all: a cut is found among them */
#define GATHERED (CLUSTER_MAX * SHARE_MAX)
#define PAIRS_MAX 256       /* values among which a cut is found by comparing all with all */
#define WEIGHT_SCALE 0x1p40 /* as FT_SELECT_SCALE of select.h */
#define GROUP 32            /* blocks whose sums are added up for themselves, as rowmath has it */
#define RUN 16              /* tokens that ft_transform_draw passes together */
#define EXP_MIN -87.0f
#define FLT_LEAST 0x1p-126f
#define FLT_LARGEST 0x1.fffffep127f
#define Q_SUM_SLACK 1e-3

#define OWN_GROUPS_MAX (SLICE_MAX / BLOCK / GROUP) /* of a cluster's block */
#define GROUPS_MAX (CLUSTER_MAX * OWN_GROUPS_MAX)

/* Where a block of 256 tokens has its sum, and a token of a slice its logit or q: two that are
 * looked at at once do not meet in one bank. */
static __device__ __forceinline__ int32_t sum_at(int32_t block) {
    return block / GROUP * (GROUP + 1) + block % GROUP;
}
#define SLOTS (SLICE_MAX / BLOCK * (BLOCK + LANES))
static __device__ __forceinline__ int32_t slot_of(int32_t at) {
    return at / BLOCK * (BLOCK + LANES) + at % BLOCK;
}

/* A block of threads among those that have a row. Its threads have a slice of it. */
struct team {
    cg::cluster_group cluster;
    int32_t n_blocks, rank;
    int32_t n_threads, n_warps, warp, lane;
    int32_t slice;      /* tokens, a power of two */
    int32_t own_groups; /* of blocks whose sums are added up for themselves; 1 or 2 */
    int turn;           /* of what is used in turn */
};

static __device__ __forceinline__ struct team team_of_block(void) {
    struct team t = {cg::this_cluster(), 0, 0, 0, 0, 0, 0, 0, 0, 0};
    t.n_blocks = (int32_t)t.cluster.num_blocks();
    t.rank = (int32_t)t.cluster.block_rank();
    t.n_threads = (int32_t)blockDim.x;
    t.n_warps = t.n_threads / 32;
    t.warp = (int32_t)threadIdx.x / 32;
    t.lane = (int32_t)threadIdx.x % 32;
    t.slice = t.n_threads * VALUES;
    t.own_groups = t.n_threads / THREADS_MIN;
    t.turn = 0;
    return t;
}

/* The token, and the slot in a slice, of this thread's value j. */
static __device__ __forceinline__ int32_t id_of(const struct team &t, int j) {
    return t.rank * t.slice + (int32_t)threadIdx.x / LANES * BLOCK + (int32_t)threadIdx.x % LANES +
           j * LANES;
}
static __device__ __forceinline__ int32_t own_slot(int j) {
    return (int32_t)threadIdx.x / LANES * (BLOCK + LANES) + (int32_t)threadIdx.x % LANES +
           j * LANES;
}

/* Value number at of x, which is in registers. */
static __device__ __forceinline__ float pick(const float x[VALUES], int32_t at) {
    float picked = x[0];
#pragma unroll
    for (int j = 1; j < VALUES; j++)
        picked = j == at ? x[j] : picked;
    return picked;
}

/* What a kernel is launched with. Lists that are brought along lie behind the op; a kernel for those
 * that have been copied has a size of its own, which is next to nothing. */
#define NOT_BROUGHT 16
template <int BYTES> struct choose_args {
    struct ft_op_choose op;
    alignas(16) char lists[BYTES];
};

/* The op's lists, where they are; shift leads there from where the rows say they are. */
struct lists {
    const struct ft_choice_row *rows;
    const struct ft_choice_edit *edits;
    const int32_t *ids;
    int64_t shift;
    bool are_brought;
};
template <class T> static __device__ __forceinline__ const T *shifted(const T *p, int64_t shift) {
    return (const T *)((const char *)p + shift);
}
template <int BYTES>
static __device__ __forceinline__ struct lists find_lists(const struct choose_args<BYTES> &a) {
    bool are_brought = BYTES > NOT_BROUGHT;
    int64_t shift = are_brought ? a.lists - (const char *)a.op.lists_at : 0;
    return {shifted(a.op.rows, shift), shifted(a.op.edits, shift), shifted(a.op.ids, shift), shift,
            are_brought};
}
/* An element of a list. Copied ones may have been changed since a kernel before this one read. */
template <class T>
static __device__ __forceinline__ T listed(const struct lists &lists, const T *p) {
    return lists.are_brought ? *p : __ldcg(p);
}

struct found { /* by one level of a selection */
    int32_t bucket;
    uint32_t count;
    uint64_t want;
};

/* When the race of `coupled` has an id; see gumbel.c. */
struct arrival {
    double time;
    int32_t id;
};

struct shared {
    struct ft_choice_row row;
    union {
        float slice[SLOTS]; /* of the row, while it is edited; see slot_of */
        struct {
            unsigned long long own_weights[BUCKETS]; /* of this block; then of the gathered */
            unsigned own_counts[BUCKETS];
            uint32_t gathered[GATHERED]; /* keys */
        };
    };
    float q[SLOTS]; /* what the draft was drawn from; on its way while p is worked out */
    unsigned long long weights[BUCKETS]; /* of all blocks; zero between cuts */
    unsigned counts[BUCKETS];
    uint32_t shared_keys[GATHERED]; /* [block][SHARE_MAX] as the blocks send them */
    union {
        unsigned is_allowed[SLICE_MAX / 32]; /* while the row is edited */
        float walk[BLOCK / RUN * (RUN + 1)];
    };
    double
        upto[OWN_GROUPS_MAX * (GROUP + 1)]; /* sum of the group's blocks up to each of this slice */
    double groups[2][GROUPS_MAX];           /* sums of all groups of the row; used in turn */
    double groups_upto[GROUPS_MAX];
    uint64_t warp_weights[WARPS_MAX];
    struct arrival arrivals[WARPS_MAX], first_arrivals[CLUSTER_MAX];
    struct found found;
    alignas(16) uint32_t warp_tops[WARPS_MAX]; /* keys */
    uint2 tops[CLUSTER_MAX]; /* of blocks: largest key; what is left when many warps have more */
    int32_t warp_ids[WARPS_MAX], block_ids[CLUSTER_MAX];
    int32_t drafted[FT_CHOICE_DRAFTED_MAX], is_edited[FT_CHOICE_DRAFTED_MAX];
    unsigned n_own, best_key, least_key;
    int32_t shares[CLUSTER_MAX];
    float warp_masses[WARPS_MAX], masses[CLUSTER_MAX];
    float p_draft, q_draft;
};

static __device__ __forceinline__ struct arrival earlier(struct arrival a, struct arrival b) {
    return b.time < a.time || (b.time == a.time && b.id < a.id) ? b : a;
}

/* As ft_philox_uniforms has it: number id % 2 of lane id / 2, purpose FT_PHILOX_GUMBEL. */
static __device__ __forceinline__ double gumbel_uniform(uint64_t seed, uint64_t position,
                                                        int32_t id) {
    uint32_t key_0 = (uint32_t)seed, key_1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)position, c1 = (uint32_t)(position >> 32);
    uint32_t c2 = 4, c3 = (uint32_t)(id / 2);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t product_0 = (uint64_t)0xD2511F53u * c0, product_1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(product_1 >> 32) ^ c1 ^ key_0;
        c1 = (uint32_t)product_1;
        c2 = (uint32_t)(product_0 >> 32) ^ c3 ^ key_1;
        c3 = (uint32_t)product_0;
        key_0 += 0x9E3779B9u;
        key_1 += 0xBB67AE85u;
    }
    uint64_t bits = id % 2 == 0 ? (uint64_t)c1 << 32 | c0 : (uint64_t)c3 << 32 | c2;
    return (double)(bits >> 11) * 0x1p-53;
}

/* As ft_gumbel_exponential. */
static __device__ __forceinline__ double exponential(double u) {
    const double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
    int exponent;
    double m = frexp(__dsub_rn(1.0, u), &exponent);
    if (m < 0x1.6a09e667f3bcdp-1) {
        m = __dmul_rn(m, 2.0);
        exponent--;
    }
    double s = __ddiv_rn(__dsub_rn(m, 1.0), __dadd_rn(m, 1.0)), square = __dmul_rn(s, s);
    double sum = 0.0;
#pragma unroll
    for (int k = 21; k >= 3; k -= 2)
        sum = __dmul_rn(__dadd_rn(sum, 1.0 / k), square);
    double log_m = __dmul_rn(2.0, __dadd_rn(s, __dmul_rn(s, sum)));
    return -__dadd_rn(__dmul_rn((double)exponent, ln2_high),
                      __dadd_rn(log_m, __dmul_rn((double)exponent, ln2_low)));
}

#endif
