/* A row of logits becomes a token, without sorting: the same steps, in the same order of sums, as
 * common/spec has them (transform.c, rowmath.c, select.c, residual.c, gumbel.c).
 *
 * A cluster of 8 blocks, or of 16 for a large vocabulary, has one row, which is read once and then
 * stays in registers. rowmath cuts a row in blocks of 256 tokens and each of them in 16 lanes; a
 * thread has one lane of one block: token block * 256 + lane + 16 j is its value j. So a lane's sum
 * is a thread's, a block's sum is a tree over 16 threads, and the blocks' sums are added up group
 * by group in each block of the cluster, which all get the same. */
#include "common/gpu/kernels/choose.cuh"
#include "common/gpu/kernels/choose_cut.cuh"

#define BLANK INT32_MAX

/* ---- edits */

static __device__ __forceinline__ float penalise(const struct ft_choice_row &row, float logit,
                                                 int32_t n_output) {
    logit = logit > 0.0f ? logit / row.repetition : logit * row.repetition;
    if (n_output > 0)
        logit = logit - (row.frequency * (float)n_output + row.presence);
    return logit;
}

/* The row's part of this block, edited, in shared memory. Returns whether a logit is none. */
static __device__ __forceinline__ bool load_slice(const struct ft_choice_row &row, int32_t rank,
                                                  float *slice) {
    bool is_bad = false;
    int32_t first = rank * SLICE;
#pragma unroll
    for (int32_t i = threadIdx.x * 4; i < SLICE; i += THREADS * 4) {
        float4 x = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
        int32_t left = row.n_vocab - first - i;
        if (left > 0)
            x = __ldcg((const float4 *)(row.logits + first + i));
        x.y = left > 1 ? x.y : -INFINITY;
        x.z = left > 2 ? x.z : -INFINITY;
        x.w = left > 3 ? x.w : -INFINITY;
        is_bad |= !(x.x < INFINITY) || !(x.y < INFINITY) || !(x.z < INFINITY) || !(x.w < INFINITY);
        *(float4 *)(slice + i) = x;
    }
    return is_bad;
}

/* Where a token lies in this block's slice; -1: with another block. */
static __device__ __forceinline__ int32_t place_of(int32_t id, int32_t rank, int32_t n_vocab) {
    if (id < 0 || id >= n_vocab)
        return -1;
    return id / SLICE == rank ? id % SLICE : -1;
}

static __device__ __forceinline__ int32_t occurrences(const struct ft_choice_row &row,
                                                      const int32_t *drafted, int32_t id) {
    int32_t n = 0;
    for (int32_t j = 0; j < row.n_drafted; j++)
        n += drafted[j] == id;
    return n;
}

/* Drafted tokens count as output. Most are in no edit: those are marked in is_edited by the threads
 * that meet them, and the rest is changed afterwards. */
static __device__ __forceinline__ void edit_slice(const struct choose_args &a,
                                                  const struct ft_choice_row &row, int32_t rank,
                                                  struct shared &s) {
    const struct ft_choice_edit *edits = a.op.edits + row.first_edit;
    for (int32_t i = threadIdx.x; i < row.n_edits; i += THREADS) {
        int4 raw = __ldcg((const int4 *)(edits + i));
        struct ft_choice_edit e = {raw.x, __int_as_float(raw.y), raw.z, raw.w};
        int32_t at = place_of(e.id, rank, row.n_vocab);
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
        int32_t id = s.drafted[j], at = place_of(id, rank, row.n_vocab);
        bool is_first = true;
        for (int32_t i = 0; i < j; i++)
            is_first = is_first && s.drafted[i] != id;
        if (at >= 0 && is_first)
            s.slice[at] = penalise(row, s.slice[at], occurrences(row, s.drafted, id));
    }
    __syncthreads();
}

static __device__ __forceinline__ void mask_slice(const struct choose_args &a,
                                                  const struct ft_choice_row &row, int32_t rank,
                                                  struct shared &s) {
    const int32_t *banned = a.op.ids + row.first_banned, *allowed = a.op.ids + row.first_allowed;
    for (int32_t i = threadIdx.x; i < row.n_banned; i += THREADS) {
        int32_t at = place_of(__ldcg(banned + i), rank, row.n_vocab);
        if (at >= 0)
            s.slice[at] = -INFINITY;
    }
    if (row.n_allowed == 0)
        return;
    for (int32_t i = threadIdx.x; i < SLICE / 32; i += THREADS)
        s.is_allowed[i] = 0;
    __syncthreads();
    for (int32_t i = threadIdx.x; i < row.n_allowed; i += THREADS) {
        int32_t at = place_of(__ldcg(allowed + i), rank, row.n_vocab);
        if (at >= 0)
            atomicOr(&s.is_allowed[at / 32], 1u << at % 32);
    }
    __syncthreads();
    for (int32_t i = threadIdx.x; i < SLICE; i += THREADS)
        if ((s.is_allowed[i / 32] >> i % 32 & 1) == 0)
            s.slice[i] = -INFINITY;
}

/* This thread's values, edited. Returns whether a logit is none, in this block. */
static __device__ __forceinline__ bool load_row(const struct choose_args &a,
                                                const struct ft_choice_row &row, int32_t rank,
                                                struct shared &s, float x[VALUES]) {
    bool is_bad = load_slice(row, rank, s.slice);
    if ((int32_t)threadIdx.x < row.n_drafted) {
        s.drafted[threadIdx.x] = __ldcg(row.drafted + threadIdx.x);
        s.is_edited[threadIdx.x] = 0;
    }
    __syncthreads();
    if (row.n_edits > 0 || (row.has_penalties && row.n_drafted > 0))
        edit_slice(a, row, rank, s);
    if (row.n_banned > 0 || row.n_allowed > 0) {
        mask_slice(a, row, rank, s);
        __syncthreads();
    }
#pragma unroll
        for (int j = 0; j < VALUES; j++) {
            x[j] = s.slice[threadIdx.x / LANES * BLOCK + threadIdx.x % LANES +
                              j * LANES];
            is_bad |= !(x[j] < INFINITY);
        }
    return is_bad;
}

/* ---- distribution */

/* As exp_in_range of rowmath.c. */
static __device__ __forceinline__ float exp_in_range(float z) {
    const float round_bias = 0x1.8p23f;
    const float ln2_high = 0x1.63p-1f, ln2_low = -0x1.bd0106p-13f;
    float biased = __fadd_rn(__fmul_rn(z, 0x1.715476p0f), round_bias);
    float k = __fsub_rn(biased, round_bias);
    float r = __fsub_rn(__fsub_rn(z, __fmul_rn(k, ln2_high)), __fmul_rn(k, ln2_low));
    float y = __fadd_rn(__fmul_rn(r, 1.0f / 5040), 1.0f / 720);
    y = __fadd_rn(__fmul_rn(y, r), 1.0f / 120);
    y = __fadd_rn(__fmul_rn(y, r), 1.0f / 24);
    y = __fadd_rn(__fmul_rn(y, r), 1.0f / 6);
    y = __fadd_rn(__fmul_rn(y, r), 0.5f);
    y = __fadd_rn(__fmul_rn(y, r), 1.0f);
    y = __fadd_rn(__fmul_rn(y, r), 1.0f);
    uint32_t bits = (__float_as_uint(biased) + 127u) << 23;
    return __fmul_rn(y, __uint_as_float(bits));
}

/* Sum of all values in the order of ft_rowmath_sum: the blocks' of a group, then the groups'.
 * s.upto[turn][sum_at(i)] is that of blocks 0 .. i, s.before[g] that of groups 0 .. g - 1. */
static __device__ __forceinline__ double sum_row(cg::cluster_group &cluster, struct shared &s,
                                                 const float x[VALUES], int &turn) {
    int32_t n_blocks = (int32_t)cluster.num_blocks() * (SLICE / BLOCK);
    int32_t n_groups = n_blocks / GROUP;
    int32_t rank = (int32_t)cluster.block_rank();
    turn ^= 1;
    float lane = x[0];
#pragma unroll
    for (int j = 1; j < VALUES; j++)
        lane = __fadd_rn(lane, x[j]);
    double block_sum = (double)lane;
#pragma unroll
    for (int width = LANES / 2; width > 0; width /= 2)
        block_sum = __dadd_rn(block_sum, __shfl_down_sync(0xFFFFFFFFu, block_sum, width, LANES));
    if (threadIdx.x % LANES == 0) {
        int32_t block = rank * (SLICE / BLOCK) + threadIdx.x / LANES;
        for (unsigned r = 0; r < cluster.num_blocks(); r++)
            cluster.map_shared_rank(&s, r)->upto[turn][sum_at(block)] = block_sum;
    }
    cluster.sync();
    double *upto = s.upto[turn];
    if ((int32_t)threadIdx.x < n_groups) {
        double sum = 0.0;
#pragma unroll 8
        for (int32_t i = 0; i < GROUP; i++) {
            sum = __dadd_rn(sum, upto[threadIdx.x * (GROUP + 1) + i]);
            upto[threadIdx.x * (GROUP + 1) + i] = sum;
        }
        s.before[threadIdx.x] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double sum = 0.0, next;
#pragma unroll 8
        for (int g = 0; g < n_groups; g++, sum = next) {
            next = __dadd_rn(sum, s.before[g]);
            s.before[g] = sum;
        }
        s.total = sum;
    }
    __syncthreads();
    double total = s.total;
    if ((int32_t)threadIdx.x < n_blocks) {
        int32_t at = sum_at(threadIdx.x);
        upto[at] = __dadd_rn(s.before[threadIdx.x / GROUP], upto[at]);
    }
    __syncthreads();
    return total;
}

/* As ft_transform_row, of values that are edited already. */
static __device__ __forceinline__ void distribute(cg::cluster_group &cluster, struct shared &s,
                                                  const struct ft_choice_row &row, float max,
                                                  int &turn, float x[VALUES]) {
    float cut = -INFINITY, scale = __fdiv_rn(1.0f, row.temperature);
    if (row.top_k > 0 && row.top_k < row.n_vocab)
        cut = select_cut(cluster, s, x, -INFINITY, (uint64_t)row.top_k, false);
#pragma unroll
        for (int j = 0; j < VALUES; j++) {
            float z = __fmul_rn(__fsub_rn(x[j], max), scale);
            float e = exp_in_range(z >= EXP_MIN ? z : EXP_MIN);
            x[j] = z >= EXP_MIN && x[j] >= cut ? e : 0.0f;
        }
    double sum = 0.0;
    float threshold = row.min_p;
    if (row.top_p < 1.0f || !(threshold > 0.0f))
        sum = sum_row(cluster, s, x, turn);
    if (row.top_p < 1.0f) {
        double bound = (1.0 - (double)row.top_p) * sum / (double)row.n_vocab * 0.999;
        float least = bound > (double)FLT_LEAST ? (float)bound : FLT_LEAST;
        uint64_t want = fixed_point((double)row.top_p * sum);
        float nucleus = select_cut(cluster, s, x, least, want, true);
        threshold = nucleus > threshold ? nucleus : threshold;
    }
    if (threshold > 0.0f) {
#pragma unroll
            for (int j = 0; j < VALUES; j++)
                x[j] = x[j] >= threshold ? x[j] : 0.0f;
        sum = sum_row(cluster, s, x, turn);
    }
    float factor = (float)(1.0 / sum);
#pragma unroll
        for (int j = 0; j < VALUES; j++)
            x[j] = __fmul_rn(x[j], factor);
}

static __device__ __forceinline__ int32_t id_of(int32_t rank, int j) {
    return rank * SLICE + threadIdx.x / LANES * BLOCK + threadIdx.x % LANES +
           j * LANES;
}

/* ---- draws */

/* In the block of 256 tokens at s.walk, past what lies before it: the first that takes the sum past
 * aim, runs of 16 at a time; the last with a probability when rounding ends before. By one warp. */
static __device__ __forceinline__ int32_t walk(struct shared &s, double before, double aim) {
    int32_t lane = threadIdx.x % 32, last = -1;
    if (lane < BLOCK / RUN) {
        double sum = 0.0;
#pragma unroll
        for (int i = 0; i < RUN; i++)
            sum = __dadd_rn(sum, (double)s.walk[lane * RUN + i]);
        s.runs[lane] = sum;
    }
    __syncwarp();
    int32_t r = 0;
    while (r < BLOCK / RUN && !(__dadd_rn(before, s.runs[r]) > aim))
        before = __dadd_rn(before, s.runs[r++]);
    if (r == BLOCK / RUN) { /* rounding */
        for (int32_t i = 0; i < BLOCK; i++)
            last = s.walk[i] > 0.0f ? i : last;
        return last;
    }
    for (int32_t i = r * RUN; i < (r + 1) * RUN; i++) {
        if (!(s.walk[i] > 0.0f))
            continue;
        last = i;
        before = __dadd_rn(before, (double)s.walk[i]);
        if (before > aim)
            break;
    }
    return last;
}

/* As ft_transform_draw, with the sums of sum_row. Every thread gets the token; -1: none. */
static __device__ __forceinline__ int32_t draw(cg::cluster_group &cluster, struct shared &s,
                                               const float x[VALUES], double total, double u,
                                               int turn) {
    const double *upto = s.upto[turn];
    int32_t rank = (int32_t)cluster.block_rank();
    double aim = __dmul_rn(u, total);
    if (threadIdx.x == 0)
        s.met_block = BLANK;
    __syncthreads();
    if (threadIdx.x < cluster.num_blocks() * (SLICE / BLOCK) && upto[sum_at(threadIdx.x)] > aim)
        atomicMin(&s.met_block, (int32_t)threadIdx.x);
    __syncthreads();
    int32_t block = s.met_block;
    if (block == BLANK)
        return -1;
    int32_t slice = block / (SLICE / BLOCK), own = block % (SLICE / BLOCK);
    if (slice == rank) {
            if ((int32_t)threadIdx.x / LANES == own)
#pragma unroll
                for (int j = 0; j < VALUES; j++)
                    s.walk[threadIdx.x % LANES + j * LANES] = x[j];
        __syncthreads();
        if (threadIdx.x < 32) {
            double before = block % GROUP == 0 ? s.before[block / GROUP] : upto[sum_at(block - 1)];
            int32_t at = walk(s, before, aim);
            if (threadIdx.x < cluster.num_blocks())
                cluster.map_shared_rank(&s, threadIdx.x)->drawn = at < 0 ? -1 : block * BLOCK + at;
        }
    }
    cluster.sync();
    return s.drawn;
}

static __device__ __forceinline__ int32_t gumbel(cg::cluster_group &cluster, struct shared &s,
                                                 const struct ft_choice_row &row,
                                                 const float x[VALUES]) {
    int32_t rank = (int32_t)cluster.block_rank();
    struct arrival best = {INFINITY, BLANK};
#pragma unroll
        for (int j = 0; j < VALUES; j++) {
            if (!(x[j] > 0.0f))
                continue;
            int32_t id = id_of(rank, j);
            double p = (double)x[j], u = gumbel_uniform(row.seed, row.position, id);
            if (u >= __dmul_rn(best.time, p))
                continue;
            best = earlier(best, {exponential(u) / p, id});
        }
    for (int i = 16; i > 0; i /= 2) {
        struct arrival other = {__shfl_xor_sync(0xFFFFFFFFu, best.time, i),
                                __shfl_xor_sync(0xFFFFFFFFu, best.id, i)};
        best = earlier(best, other);
    }
    if (threadIdx.x % 32 == 0)
        s.arrivals[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < THREADS / 32; w++)
            best = earlier(best, s.arrivals[w]);
        for (unsigned r = 0; r < cluster.num_blocks(); r++)
            cluster.map_shared_rank(&s, r)->first_arrivals[rank] = best;
    }
    cluster.sync();
    best = s.first_arrivals[0];
    for (unsigned r = 1; r < cluster.num_blocks(); r++)
        best = earlier(best, s.first_arrivals[r]);
    return best.id == BLANK ? -1 : best.id;
}

/* What the draft took is taken off p, as ft_residual_weigh does. */
static __device__ __forceinline__ void take_off(cg::cluster_group &cluster, struct shared &s,
                                                const struct ft_choice_row &row,
                                                float x[VALUES]) {
    int32_t rank = (int32_t)cluster.block_rank();
    bool is_valid = true;
    float mass = 0.0f;
#pragma unroll
        for (int j = 0; j < VALUES; j++) {
            int32_t id = id_of(rank, j);
            if (row.q == NULL) {
                if (id == row.draft)
                    x[j] = fmaxf(__fsub_rn(x[j], row.lenience), 0.0f);
                continue;
            }
            float q = id < row.n_q ? __ldcg(row.q + id) : 0.0f;
            is_valid = is_valid && q >= 0.0f && q < INFINITY;
            mass = __fadd_rn(mass, q);
            float excess = __fsub_rn(x[j], __fmul_rn(q, row.lenience));
            x[j] = id >= row.n_q ? x[j] : excess > 0.0f ? excess : 0.0f;
        }
    if (row.q == NULL)
        return;
    int32_t n_blocks = (int32_t)cluster.num_blocks(); /* the draft may have far more tokens */
    for (int32_t id = n_blocks * SLICE + rank * THREADS + threadIdx.x; id < row.n_q;
         id += n_blocks * THREADS) {
        float q = __ldcg(row.q + id);
        is_valid = is_valid && q >= 0.0f && q < INFINITY;
        mass = __fadd_rn(mass, q);
    }
    double sum = (double)k_warp_sum(mass);
    is_valid = __syncthreads_and(is_valid);
    if (threadIdx.x % 32 == 0)
        s.arrivals[threadIdx.x / 32].time = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < THREADS / 32; w++)
            sum += s.arrivals[w].time;
        for (unsigned r = 0; r < cluster.num_blocks(); r++)
            cluster.map_shared_rank(&s, r)->first_arrivals[rank] = {is_valid ? sum : -1e9, 0};
    }
}

/* Is what take_off has added up a distribution? Once the cluster has synced. */
static __device__ __forceinline__ bool is_distribution(const cg::cluster_group &cluster,
                                                       const struct shared &s) {
    double sum = 0.0;
    for (unsigned r = 0; r < cluster.num_blocks(); r++)
        sum += s.first_arrivals[r].time;
    return fabs(sum - 1.0) <= Q_SUM_SLACK;
}

static __device__ __forceinline__ void decide(cg::cluster_group &cluster, struct shared &s,
                                              const struct ft_choice_row &row, int &turn,
                                              float x[VALUES], struct ft_choice_result &out) {
    int32_t rank = (int32_t)cluster.block_rank();
    if (row.kind == FT_CHOICE_GUMBEL) {
        out.token = gumbel(cluster, s, row, x);
        return;
    }
    double u_q = 0.0;
    if (row.kind == FT_CHOICE_SPECULATE) {
        float p = 0.0f; /* of the draft: where another has it, nothing */
#pragma unroll
            for (int j = 0; j < VALUES; j++)
                if (id_of(rank, j) == row.draft) {
                    p = x[j];
                    for (unsigned r = 0; r < cluster.num_blocks(); r++)
                        cluster.map_shared_rank(&s, r)->p_draft = p;
                }
        bool is_known = row.draft >= 0 && row.draft < row.n_vocab;
        double q = 1.0;
        if (row.q != NULL)
            q = row.draft >= 0 && row.draft < row.n_q ? (double)__ldcg(row.q + row.draft) : 0.0;
        if (!(q > 0.0 && q <= 1.0 + Q_SUM_SLACK))
            out.status = FT_CHOICE_ASK;
        take_off(cluster, s, row, x);
        out.is_accepted = is_known; /* for now: the draft's p is on its way */
        u_q = __dmul_rn(row.u_accept, __dmul_rn(q, (double)row.lenience));
    }
    double total = sum_row(cluster, s, x, turn);
    if (row.kind == FT_CHOICE_SPECULATE) {
        if (row.q != NULL && out.status == FT_CHOICE_OK && !is_distribution(cluster, s))
            out.status = FT_CHOICE_BAD_Q;
        out.is_accepted = out.is_accepted && u_q < (double)s.p_draft;
    }
    /* Nothing left: p <= q everywhere up to rounding, and the host draws from p. */
    out.token = total > 0.0 ? draw(cluster, s, x, total, row.u_draw, turn) : -1;
}

/* ---- the kernel */

static __device__ __forceinline__ void cluster_arrive(void) {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
static __device__ __forceinline__ void cluster_wait(void) {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* The row's largest value, in every thread; and whether any block has met what is no logit. */
static __device__ __forceinline__ float find_max(cg::cluster_group &cluster, struct shared &s,
                                                 const float x[VALUES], bool *is_bad) {
    float max = -INFINITY;
#pragma unroll
        for (int j = 0; j < VALUES; j++)
            max = fmaxf(max, x[j]);
    max = k_warp_max(max);
    bool any_bad = __syncthreads_or(*is_bad);
    if (threadIdx.x % 32 == 0)
        s.warp_max[threadIdx.x / 32] = max;
    __syncthreads();
    if (threadIdx.x < 32) {
        max = k_warp_max(s.warp_max[threadIdx.x]);
        if (threadIdx.x < cluster.num_blocks())
            cluster.map_shared_rank(&s, threadIdx.x)->block_max[cluster.block_rank()] =
                any_bad ? INFINITY : max;
    }
    cluster.sync();
    max = s.block_max[0];
    for (unsigned r = 1; r < cluster.num_blocks(); r++)
        max = fmaxf(max, s.block_max[r]);
    *is_bad = max == INFINITY;
    return max;
}

static __device__ __forceinline__ int32_t find_first(cg::cluster_group &cluster,
                                                     struct shared &s,
                                                     const float x[VALUES], float max) {
    int32_t rank = (int32_t)cluster.block_rank(), lowest = BLANK;
#pragma unroll
        for (int j = VALUES - 1; j >= 0; j--)
            lowest = x[j] == max ? id_of(rank, j) : lowest;
    lowest = __reduce_min_sync(0xFFFFFFFFu, lowest);
    if (threadIdx.x % 32 == 0)
        s.warp_ids[threadIdx.x / 32] = lowest;
    __syncthreads();
    if (threadIdx.x < 32) {
        lowest = __reduce_min_sync(0xFFFFFFFFu, s.warp_ids[threadIdx.x]);
        if (threadIdx.x < cluster.num_blocks())
            cluster.map_shared_rank(&s, threadIdx.x)->block_ids[rank] = lowest;
    }
    cluster.sync();
    for (unsigned r = 0; r < cluster.num_blocks(); r++)
        lowest = min(lowest, s.block_ids[r]);
    return lowest;
}

static __global__ void __launch_bounds__(THREADS, 1)
    choose_kernel(const __grid_constant__ struct choose_args a) {
    extern __shared__ __align__(16) unsigned char memory[];
    struct shared &s = *(struct shared *)memory;
    cg::cluster_group cluster = cg::this_cluster();
    int32_t rank = (int32_t)cluster.block_rank(), idx = blockIdx.x / cluster.num_blocks();
    k_let_next_start();
    cluster_arrive();
    k_wait();
    for (int32_t i = threadIdx.x; i < (int32_t)(sizeof s.row / 4); i += THREADS)
        ((uint32_t *)&s.row)[i] = __ldcg((const uint32_t *)(a.op.rows + idx) + i);
    __syncthreads();
    const struct ft_choice_row &row = s.row;
    int turn = 0;
    float x[VALUES];
    bool is_bad = load_row(a, row, rank, s, x);
    clear_buckets(s);
    cluster_wait(); /* nobody writes to a block that has not begun */
    float max = find_max(cluster, s, x, &is_bad);
    struct ft_choice_result out = {FT_CHOICE_OK, -1, 0, a.op.stamp};
    if (is_bad || max == -INFINITY) {
        out.status = FT_CHOICE_ASK;
    } else if (row.kind == FT_CHOICE_GREEDY) {
        out.token = find_first(cluster, s, x, max);
    } else {
        distribute(cluster, s, row, max, turn, x);
        if (row.probs != NULL)
#pragma unroll
                for (int j = 0; j < VALUES; j++)
                    if (id_of(rank, j) < row.n_vocab)
                        row.probs[id_of(rank, j)] = x[j];
        decide(cluster, s, row, turn, x, out);
    }
    if (out.token < 0 && !(out.is_accepted && out.status == FT_CHOICE_OK))
        out.status = out.status == FT_CHOICE_OK ? FT_CHOICE_ASK : out.status;
    if (rank == 0 && threadIdx.x == 0) {
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (row.tokens[i] != NULL)
                *row.tokens[i] = out.token < 0 ? 0 : out.token;
        volatile struct ft_choice_result *to = a.op.results + idx;
        to->status = out.status;
        to->token = out.token;
        to->is_accepted = out.is_accepted;
        __threadfence_system();
        to->stamp = out.stamp;
    }
    cluster.sync(); /* nobody leaves while others write into its memory */
}

extern "C" cudaError_t k_choose(const struct k_target *on, const struct ft_op_choose *op) {
    struct choose_args args = {*op};
    if (op->n_rows == 0)
        return cudaSuccess;
    if (op->n_vocab_max > CLUSTER_MAX * SLICE)
        return cudaErrorInvalidValue;
    unsigned n_cluster = op->n_vocab_max > CLUSTER_MIN * SLICE ? CLUSTER_MAX : CLUSTER_MIN;
    return k_launch(on, (const void *)choose_kernel,
                    {dim3((unsigned)op->n_rows * n_cluster), dim3(THREADS), sizeof(struct shared),
                     n_cluster},
                    &args);
}

extern "C" cudaError_t k_choose_setup(void) {
    cudaError_t error = cudaFuncSetAttribute((const void *)choose_kernel,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             (int)sizeof(struct shared));
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute((const void *)choose_kernel,
                                     cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    return error;
}
