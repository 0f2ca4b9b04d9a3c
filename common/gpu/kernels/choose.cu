/* A row of logits becomes a token, without sorting: the same steps, in the same order of sums, as
 * common/spec has them (transform.c, rowmath.c, select.c, residual.c, gumbel.c).
 *
 * A cluster of 8 or 16 blocks has one row, which is read once and then stays in registers. rowmath
 * cuts a row in blocks of 256 tokens and each of them in 16 lanes; a thread has one lane of one
 * block: token block * 256 + lane + 16 j is its value j. So a lane's sum is a thread's, a block's
 * sum is a tree over 16 threads, and a group of 32 blocks is added up by the cluster's block that
 * has it.
 *
 * What is done three times is one piece of code in a loop, and what is done to few values is not
 * unrolled: each instruction is fetched for a run or two, and waiting for code is a good part of
 * all waiting here. */
#include <string.h>

#include "common/gpu/kernels/choose.cuh"
#include "common/gpu/kernels/choose_cut.cuh"
#include "common/gpu/kernels/choose_load.cuh"

#define BLANK INT32_MAX

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

struct weighing {
    float max, scale, cut;
};

static __device__ __forceinline__ float weigh(const struct weighing &w, float x) {
    float z = __fmul_rn(__fsub_rn(x, w.max), w.scale);
    float e = exp_in_range(z >= EXP_MIN ? z : EXP_MIN);
    return z >= EXP_MIN && x >= w.cut ? e : 0.0f;
}

/* All of this thread's values. Where only few are above the cut, those one by one. */
static __device__ __forceinline__ void weigh_all(const struct weighing &w, bool are_few,
                                                 float x[VALUES]) {
    if (!are_few) {
#pragma unroll
        for (int j = 0; j < VALUES; j++)
            x[j] = weigh(w, x[j]);
        return;
    }
    uint32_t mine = reaching(x, w.cut);
#pragma unroll 1
    for (uint32_t left = mine; left != 0; left &= left - 1) {
        int32_t at = __ffs((int)left) - 1;
        float e = weigh(w, pick(x, at));
#pragma unroll
        for (int j = 0; j < VALUES; j++)
            x[j] = j == at ? e : x[j];
    }
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        x[j] = (mine >> j & 1) != 0 ? x[j] : 0.0f;
}

/* Sum of all values in the order of ft_rowmath_sum: the blocks' of a group, then the groups'. A
 * cluster's block has whole groups, of which it tells the others the sums. */
struct row_sum {
    double total;
    double upto; /* of groups 0 .. lane */
};

/* The sum of each block of 256, to s.upto. */
static __device__ __forceinline__ void sum_blocks(struct shared &s, const float x[VALUES]) {
    float lane = x[0];
#pragma unroll
    for (int j = 1; j < VALUES; j++)
        lane = __fadd_rn(lane, x[j]);
    double sum = (double)lane;
#pragma unroll
    for (int width = LANES / 2; width > 0; width /= 2)
        sum = __dadd_rn(sum, __shfl_down_sync(0xFFFFFFFFu, sum, width, LANES));
    if (threadIdx.x % LANES == 0)
        s.upto[sum_at(threadIdx.x / LANES)] = sum;
    __syncthreads();
}

/* Behind sum_blocks. By the first warp: a lane adds up a group. */
static __device__ __forceinline__ struct row_sum sum_groups(struct team &t, struct shared &s) {
    int32_t has_two = t.own_groups - 1, n_groups = t.n_blocks << has_two;
    t.turn ^= 1;
    if (t.warp == 0) {
        double sum = 0.0;
        double *upto = s.upto + t.lane * (GROUP + 1);
        if (t.lane <= has_two)
#pragma unroll 8
            for (int i = 0; i < GROUP; i++) {
                sum = __dadd_rn(sum, upto[i]);
                upto[i] = sum;
            }
        sum = __shfl_sync(0xFFFFFFFFu, sum, t.lane & has_two);
        if (t.lane < n_groups)
            t.cluster.map_shared_rank(&s, t.lane >> has_two)
                ->groups[t.turn][(t.rank << has_two) + (t.lane & has_two)] = sum;
    }
    t.cluster.sync();
    if (t.warp == 0) {
        double upto = 0.0;
#pragma unroll 8
        for (int g = 0; g < n_groups; g++) {
            double sum = __dadd_rn(upto, s.groups[t.turn][g]);
            upto = g <= t.lane ? sum : upto;
        }
        s.groups_upto[t.lane] = upto;
    }
    __syncthreads();
    return {s.groups_upto[n_groups - 1], s.groups_upto[t.lane]};
}

/* Where top-k cuts, and what may lie above it as gathered keys. Returns how many; -1: they are not
 * gathered. bound: at least k values reach it. */
static __device__ __forceinline__ int32_t cut_top_k(const struct team &t, struct shared &s,
                                                    float bound, const float x[VALUES],
                                                    float *cut) {
    uint64_t k = (uint64_t)s.row.top_k;
    int32_t n = gather(t, s, x, reaching(x, bound));
    if (n < 0) {
        *cut = value_of(select_from_all(t, s, x, -INFINITY, k, false));
    } else if (n > PAIRS_MAX) { /* a selection of so many loses them */
        *cut = value_of(select_gathered(t, s, n, k, false));
        return -1;
    } else if ((uint64_t)n >= k) {
        *cut = value_of(find_value(t, s, n, k, false));
    }
    return n;
}

/* The gathered logits, at most PAIRS_MAX, become the weights >= least that they have. Returns how
 * many there are. Nothing is gathered after it. */
static __device__ __forceinline__ int32_t weigh_gathered(struct shared &s, int32_t n,
                                                         const struct weighing &w, float least) {
    float e = (int32_t)threadIdx.x < n ? weigh(w, value_of(s.gathered[threadIdx.x])) : 0.0f;
    __syncthreads();
    if (e >= least)
        s.gathered[atomicAdd(&s.n_own, 1u)] = key_of(e);
    __syncthreads();
    return (int32_t)s.n_own;
}

/* The smallest weight in the nucleus, of weights whose sum is known. n: how many logits have been
 * gathered among which all that have a weight are; -1: they have not been. */
static __device__ __forceinline__ float cut_top_p(const struct team &t, struct shared &s,
                                                  double sum, const struct weighing &w, int32_t n,
                                                  const float x[VALUES]) {
    double top_p = (double)s.row.top_p;
    double bound = (1.0 - top_p) * sum / (double)s.row.n_vocab * 0.999;
    float least = bound > (double)FLT_LEAST ? (float)bound : FLT_LEAST;
    uint64_t want = fixed_point(top_p * sum);
    if (n >= 0) {
        n = weigh_gathered(s, n, w, least);
        return value_of(find_value(t, s, n, want, true));
    }
    n = gather(t, s, x, reaching(x, least));
    return value_of(n < 0 ? select_from_all(t, s, x, least, want, true)
                          : select_gathered(t, s, n, want, true));
}

/* ---- draws */

/* In the block of 256 tokens that half a warp has, past what lies before it: the first that takes
 * the sum past aim, runs of 16 at a time; the last with a probability when rounding ends before.
 * By one warp, whose lanes from first are those of the block; -1: none has a probability. */
static __device__ __forceinline__ int32_t walk(int32_t lane, struct shared &s,
                                               const float x[VALUES], int32_t first, double before,
                                               double aim) {
    int32_t at = lane - first;
    if (at >= 0 && at < LANES) /* value j is in run j */
#pragma unroll
        for (int j = 0; j < VALUES; j++)
            s.walk[j * (RUN + 1) + at] = x[j];
    __syncwarp();
    double run = 0.0;
    int32_t last = -1;
    if (lane < BLOCK / RUN)
#pragma unroll
        for (int i = 0; i < RUN; i++) {
            float p = s.walk[lane * (RUN + 1) + i];
            last = p > 0.0f ? lane * RUN + i : last;
            run = __dadd_rn(run, (double)p);
        }
    double upto = before; /* and of runs 0 .. lane */
#pragma unroll
    for (int i = 0; i < BLOCK / RUN; i++) {
        double sum = __dadd_rn(upto, __shfl_sync(0xFFFFFFFFu, run, i));
        upto = i <= lane ? sum : upto;
    }
    uint32_t met = __ballot_sync(0xFFFFFFFFu, lane < BLOCK / RUN && upto > aim);
    if (met == 0) /* rounding */
        return __reduce_max_sync(0xFFFFFFFFu, last);
    int32_t r = __ffs((int)met) - 1;
    upto = __shfl_sync(0xFFFFFFFFu, upto, r > 0 ? r - 1 : 0);
    upto = r > 0 ? upto : before; /* and of tokens 0 .. lane of the run */
#pragma unroll
    for (int i = 0; i < RUN; i++) {
        double sum = __dadd_rn(upto, (double)s.walk[r * (RUN + 1) + i]);
        upto = i <= lane ? sum : upto;
    }
    met = __ballot_sync(0xFFFFFFFFu, lane < RUN && upto > aim);
    return met != 0 ? r * RUN + __ffs((int)met) - 1 : __shfl_sync(0xFFFFFFFFu, last, r);
}

/* As ft_transform_draw, with the sums of sum_groups. Returns whether this thread is the one that
 * has the token; -1: none. */
static __device__ __forceinline__ bool draw(const struct team &t, struct shared &s,
                                            const float x[VALUES], const struct row_sum &sum,
                                            int32_t *token) {
    int32_t n_groups = t.n_blocks * t.own_groups;
    double aim = __dmul_rn(s.row.u_draw, sum.total);
    uint32_t met = __ballot_sync(0xFFFFFFFFu, t.lane < n_groups && sum.upto > aim);
    if (met == 0)
        return t.rank == 0 && threadIdx.x == 0;
    int32_t group = __ffs((int)met) - 1, own = group - t.rank * t.own_groups;
    double before = __shfl_sync(0xFFFFFFFFu, sum.upto, group > 0 ? group - 1 : 0);
    before = group > 0 ? before : 0.0;
    if (own < 0 || own >= t.own_groups)
        return false;
    double upto = __dadd_rn(before, s.upto[own * (GROUP + 1) + t.lane]);
    int32_t block = __ffs((int)__ballot_sync(0xFFFFFFFFu, upto > aim)) - 1;
    upto = __shfl_sync(0xFFFFFFFFu, upto, block > 0 ? block - 1 : 0);
    before = block > 0 ? upto : before;
    block += own * GROUP;
    if (t.warp != block * LANES / 32)
        return false;
    int32_t at = walk(t.lane, s, x, block * LANES % 32, before, aim);
    *token = at < 0 ? -1 : t.rank * t.slice + block * BLOCK + at;
    return t.lane == 0;
}

/* Each value's arrival is worked out in a loop, from shared memory: there are too many to have the
 * code once for each. */
static __device__ __forceinline__ int32_t gumbel(const struct team &t, struct shared &s,
                                                 const float x[VALUES]) {
    struct arrival best = {INFINITY, BLANK};
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        s.q[own_slot(j)] = x[j];
#pragma unroll 1
    for (int j = 0; j < VALUES; j++) {
        double p = (double)s.q[own_slot(j)];
        int32_t id = id_of(t, j);
        if (!(p > 0.0))
            continue;
        double u = gumbel_uniform(s.row.seed, s.row.position, id);
        if (u < __dmul_rn(best.time, p))
            best = earlier(best, {exponential(u) / p, id});
    }
#pragma unroll 1
    for (int i = 16; i > 0; i /= 2) {
        struct arrival other = {__shfl_xor_sync(0xFFFFFFFFu, best.time, i),
                                __shfl_xor_sync(0xFFFFFFFFu, best.id, i)};
        best = earlier(best, other);
    }
    if (t.lane == 0)
        s.arrivals[t.warp] = best;
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll 1
        for (int w = 1; w < t.n_warps; w++)
            best = earlier(best, s.arrivals[w]);
#pragma unroll 1
        for (int32_t r = 0; r < t.n_blocks; r++)
            t.cluster.map_shared_rank(&s, r)->first_arrivals[t.rank] = best;
    }
    t.cluster.sync();
    best = s.first_arrivals[0];
#pragma unroll 1
    for (int32_t r = 1; r < t.n_blocks; r++)
        best = earlier(best, s.first_arrivals[r]);
    return best.id == BLANK ? -1 : best.id;
}

/* What the draft took is taken off p, as ft_residual_weigh does. */
static __device__ __forceinline__ void take_off(const struct team &t, struct shared &s,
                                                float x[VALUES]) {
    const struct ft_choice_row &row = s.row;
    float lenience = row.lenience, mass = 0.0f;
    if (row.q == NULL) {
        int32_t draft = row.draft - id_of(t, 0);
#pragma unroll
        for (int j = 0; j < VALUES; j++)
            x[j] = j * LANES == draft ? fmaxf(__fsub_rn(x[j], lenience), 0.0f) : x[j];
        return;
    }
    bool is_valid = true;
#pragma unroll
    for (int j = 0; j < VALUES; j++) {
        float q = s.q[own_slot(j)]; /* 0 behind the row: nothing is taken */
        is_valid = is_valid && q >= 0.0f && q < INFINITY;
        mass = __fadd_rn(mass, q);
        float excess = __fsub_rn(x[j], __fmul_rn(q, lenience));
        x[j] = excess > 0.0f ? excess : 0.0f;
    }
#pragma unroll 1
    for (int32_t id = t.n_blocks * t.slice + t.rank * t.n_threads + (int32_t)threadIdx.x;
         id < row.n_q; id += t.n_blocks * t.n_threads) { /* the draft may have far more tokens */
        float q = __ldcg(row.q + id);
        is_valid = is_valid && q >= 0.0f && q < INFINITY;
        mass = __fadd_rn(mass, q);
    }
    mass = k_warp_sum(is_valid ? mass : NAN);
    if (t.lane == 0)
        s.warp_masses[t.warp] = mass;
}

/* What take_off has added up goes to all blocks, before the cluster syncs. By the second warp,
 * since the first is busy with sums. */
static __device__ __forceinline__ void send_mass(const struct team &t, struct shared &s) {
    if (t.warp != 1)
        return;
    float mass = k_warp_sum(t.lane < t.n_warps ? s.warp_masses[t.lane] : 0.0f);
    if (t.lane < t.n_blocks)
        t.cluster.map_shared_rank(&s, t.lane)->masses[t.rank] = mass;
}

/* Is the draft accepted? p and the mass of q are there. */
static __device__ __forceinline__ void judge(const struct team &t, const struct shared &s,
                                             struct ft_choice_result &out) {
    const struct ft_choice_row &row = s.row;
    double q = 1.0, mass = 1.0;
    if (row.q != NULL) {
        q = (double)s.q_draft;
        mass = (double)k_warp_sum(t.lane < t.n_blocks ? s.masses[t.lane] : 0.0f);
    }
    if (!(q > 0.0 && q <= 1.0 + Q_SUM_SLACK))
        out.status = FT_CHOICE_ASK;
    else if (!(fabs(mass - 1.0) <= Q_SUM_SLACK))
        out.status = FT_CHOICE_BAD_Q;
    bool is_known = row.draft >= 0 && row.draft < row.n_vocab;
    out.is_accepted =
        is_known && __dmul_rn(row.u_accept, __dmul_rn(q, (double)row.lenience)) < (double)s.p_draft;
}

/* p of the draft goes to all blocks; then what is left of p is in x. */
static __device__ __forceinline__ void leave_residual(const struct team &t, struct shared &s,
                                                      float x[VALUES]) {
    int32_t draft = s.row.draft - id_of(t, 0);
    if (draft >= 0 && draft < BLOCK && draft % LANES == 0) {
        float p = pick(x, draft / LANES);
#pragma unroll 1
        for (int32_t r = 0; r < t.n_blocks; r++)
            t.cluster.map_shared_rank(&s, r)->p_draft = p;
    }
    take_off(t, s, x);
}

/* What find_max has found. */
struct top {
    float max;
    float bound; /* at least top_k values reach it */
    bool is_bad; /* there is what is no logit */
};

/* As ft_transform_row, of values that are edited already, then the decision. Returns whether this
 * thread is the one that has the token. */
static __device__ __forceinline__ bool decide(struct team &t, struct shared &s,
                                              const struct top &top, float x[VALUES],
                                              struct ft_choice_result &out) {
    const struct ft_choice_row &row = s.row;
    bool has_draft = row.kind == FT_CHOICE_SPECULATE;
    struct weighing w = {top.max, __fdiv_rn(1.0f, row.temperature), -INFINITY};
    int32_t n_gathered = -1;
    bool is_cut = row.top_k > 0 && row.top_k < row.n_vocab;
    if (is_cut)
        n_gathered = cut_top_k(t, s, top.bound, x, &w.cut);
    weigh_all(w, is_cut, x);
    k_fetch_wait(); /* for q, which all have behind the barriers of the next sum */
    float threshold = row.min_p;
    struct row_sum sum = {0.0, 0.0};
    /* Sums: of the weights, of those that are kept, of p without what the draft took. */
#pragma unroll 1
    for (int pass = row.top_p < 1.0f || !(threshold > 0.0f) ? 0 : 1; pass < 3; pass++) {
        if (pass == 1) {
            if (!(threshold > 0.0f))
                continue;
#pragma unroll
            for (int j = 0; j < VALUES; j++)
                x[j] = x[j] >= threshold ? x[j] : 0.0f;
        }
        if (pass == 2) {
            float factor = (float)(1.0 / sum.total);
#pragma unroll
            for (int j = 0; j < VALUES; j++)
                x[j] = __fmul_rn(x[j], factor);
            if (row.probs != NULL)
#pragma unroll
                for (int j = 0; j < VALUES; j++)
                    if (id_of(t, j) < row.n_vocab)
                        row.probs[id_of(t, j)] = x[j];
            if (row.kind == FT_CHOICE_GUMBEL)
                break;
            if (has_draft)
                leave_residual(t, s, x);
        }
        sum_blocks(s, x);
        if (pass == 2 && has_draft && row.q != NULL)
            send_mass(t, s);
        sum = sum_groups(t, s);
        if (pass == 0 && row.top_p < 1.0f) {
            float nucleus = cut_top_p(t, s, sum.total, w, n_gathered, x);
            threshold = nucleus > threshold ? nucleus : threshold;
        }
    }
    if (row.kind == FT_CHOICE_GUMBEL) {
        out.token = gumbel(t, s, x);
        return t.rank == 0 && threadIdx.x == 0;
    }
    if (has_draft)
        judge(t, s, out);
    /* Nothing left: p <= q everywhere up to rounding, and the host draws from p. */
    if (!(sum.total > 0.0))
        return t.rank == 0 && threadIdx.x == 0;
    return draw(t, s, x, sum, &out.token);
}

/* ---- the kernel */

/* The row's largest value, in every thread; and a bound that at least top_k values reach: in each
 * block that the row fills, so many warps have one that does as make top_k in all. */
static __device__ __forceinline__ struct top find_max(const struct team &t, struct shared &s,
                                                      const float x[VALUES], bool is_bad) {
    int32_t n_full = s.row.n_vocab / t.slice > 1 ? s.row.n_vocab / t.slice : 1;
    float max = -INFINITY;
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        max = fmaxf(max, x[j]);
    uint32_t top = __reduce_max_sync(0xFFFFFFFFu, key_of(is_bad ? INFINITY : max));
    if (t.lane == 0)
        s.warp_tops[t.warp] = top;
    __syncthreads();
    if (t.warp == 0) {
        int32_t n_wanted = (s.row.top_k + n_full - 1) / n_full, n_reaching = 0;
        uint32_t own = t.lane < t.n_warps ? s.warp_tops[t.lane] : 0;
#pragma unroll 4
        for (int w = 0; w < t.n_warps; w += 4) {
            uint4 tops = *(const uint4 *)(s.warp_tops + w);
            n_reaching += (tops.x >= own) + (tops.y >= own) + (tops.z >= own) + (tops.w >= own);
        }
        top = __reduce_max_sync(0xFFFFFFFFu, own);
        own = __reduce_max_sync(0xFFFFFFFFu, n_reaching >= n_wanted ? own : 0);
        if (t.lane < t.n_blocks)
            t.cluster.map_shared_rank(&s, t.lane)->tops[t.rank] = make_uint2(top, own);
    }
    t.cluster.sync();
    uint2 tops = t.lane < t.n_blocks ? s.tops[t.lane] : make_uint2(0, 0);
    uint32_t least = __reduce_min_sync(0xFFFFFFFFu, t.lane < n_full ? tops.y : 0xFFFFFFFFu);
    max = value_of(__reduce_max_sync(0xFFFFFFFFu, tops.x));
    return {max, least > key_of(-INFINITY) ? value_of(least) : -FLT_LARGEST, max == INFINITY};
}

static __device__ __forceinline__ int32_t find_first(const struct team &t, struct shared &s,
                                                     const float x[VALUES], float max) {
    int32_t lowest = BLANK;
#pragma unroll
    for (int j = VALUES - 1; j >= 0; j--)
        lowest = x[j] == max ? id_of(t, j) : lowest;
    lowest = __reduce_min_sync(0xFFFFFFFFu, lowest);
    if (t.lane == 0)
        s.warp_ids[t.warp] = lowest;
    __syncthreads();
    if (t.warp == 0) {
        lowest = __reduce_min_sync(0xFFFFFFFFu, t.lane < t.n_warps ? s.warp_ids[t.lane] : BLANK);
        if (t.lane < t.n_blocks)
            t.cluster.map_shared_rank(&s, t.lane)->block_ids[t.rank] = lowest;
    }
    t.cluster.sync();
    return __reduce_min_sync(0xFFFFFFFFu, t.lane < t.n_blocks ? s.block_ids[t.lane] : BLANK);
}

/* All of it at once: who sees the stamp sees the rest. */
static __device__ __forceinline__ void store_result(struct ft_choice_result *to,
                                                    const struct ft_choice_result &out) {
    k_store_whole(to, (uint64_t)(uint32_t)out.token << 32 | (uint32_t)out.status,
                  (uint64_t)(uint32_t)out.stamp << 32 | (uint32_t)out.is_accepted);
}

static __device__ __forceinline__ void publish(const struct shared &s, struct ft_choice_result *to,
                                               struct ft_choice_result out) {
    if (out.token < 0 && !out.is_accepted && out.status == FT_CHOICE_OK)
        out.status = FT_CHOICE_ASK;
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (s.row.tokens[i] != NULL)
            *s.row.tokens[i] = out.token < 0 ? 0 : out.token;
    if (s.row.tokens[0] != NULL || s.row.tokens[1] != NULL)
        __threadfence_system();
    store_result(to, out);
}

template <int BYTES>
static __global__ void __launch_bounds__(THREADS_MAX, 1)
    choose_kernel(const __grid_constant__ struct choose_args<BYTES> a) {
    K_SHARED_MEMORY(unsigned char, memory);
    struct shared &s = *(struct shared *)memory;
    struct team t = team_of_block();
    const struct lists lists = find_lists(a);
    int32_t idx = (int32_t)blockIdx.x / t.n_blocks;
    k_let_next_start();
    k_cluster_meet();
    k_wait();
    for (int32_t i = threadIdx.x; i < (int32_t)(sizeof s.row / 4); i += t.n_threads)
        ((uint32_t *)&s.row)[i] = listed(lists, (const uint32_t *)(lists.rows + idx) + i);
    clear_buckets(t, s);
    if (threadIdx.x == 0)
        s.n_own = 0;
    __syncthreads();
    float x[VALUES];
    bool is_bad = load_row(t, lists, s, x);
    k_cluster_wait(); /* nobody writes to a block that has not begun */
    struct top top = find_max(t, s, x, is_bad);
    struct ft_choice_result out = {FT_CHOICE_OK, -1, 0, a.op.stamp};
    bool is_told = t.rank == 0 && threadIdx.x == 0; /* what has been decided */
    if (top.is_bad || top.max == -INFINITY)
        out.status = FT_CHOICE_ASK;
    else if (s.row.kind == FT_CHOICE_GREEDY)
        out.token = find_first(t, s, x, top.max);
    else
        is_told = decide(t, s, top, x, out);
    if (is_told)
        publish(s, a.op.results + idx, out);
    k_fetch_wait();
    k_cluster_meet();
    k_cluster_wait(); /* nobody leaves while others write into its memory */
}

template <int BYTES>
static cudaError_t launch(const struct k_target *on, const struct ft_op_choose *op,
                          unsigned n_cluster, unsigned n_threads) {
    struct choose_args<BYTES> args;
    args.op = *op;
    if (BYTES > NOT_BROUGHT)
        memcpy(args.lists, op->lists, op->lists_bytes);
    return k_launch(
        on, (const void *)choose_kernel<BYTES>,
        {dim3((unsigned)op->n_rows * n_cluster), dim3(n_threads), sizeof(struct shared), n_cluster},
        &args);
}

/* Few rows are spread over many processors, since each has less to do then; many rows over few,
 * which wait for each other less. A cluster of 16 needs processors that lie together, and not all
 * do: of 132 there are seven such sets. */
#define SET_PROCESSORS 18
extern "C" cudaError_t k_choose(const struct k_target *on, const struct ft_op_choose *op) {
    const int32_t half = CLUSTER_MIN * SLICE_MAX / 2;
    unsigned n_cluster = CLUSTER_MIN, n_threads = THREADS_MAX;
    if (op->n_rows == 0)
        return cudaSuccess;
    if (op->n_vocab_max > 4 * half || op->lists_bytes > FT_CHOICE_BROUGHT_MAX)
        return cudaErrorInvalidValue;
    if (op->n_vocab_max > 2 * half) {
        n_cluster = CLUSTER_MAX;
    } else if (op->n_vocab_max <= half) {
        n_threads = THREADS_MIN;
    } else if (op->n_rows <= on->n_processors / SET_PROCESSORS) {
        n_cluster = CLUSTER_MAX;
        n_threads = THREADS_MIN;
    }
    return op->lists != NULL ? launch<FT_CHOICE_BROUGHT_MAX>(on, op, n_cluster, n_threads)
                             : launch<NOT_BROUGHT>(on, op, n_cluster, n_threads);
}

template <int BYTES> static cudaError_t set_up(void) {
    const void *kernel = (const void *)choose_kernel<BYTES>;
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             (int)sizeof(struct shared));
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    return error;
}
extern "C" cudaError_t k_choose_setup(void) {
    cudaError_t error = set_up<NOT_BROUGHT>();
    return error == cudaSuccess ? set_up<FT_CHOICE_BROUGHT_MAX>() : error;
}
