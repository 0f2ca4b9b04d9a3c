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

/* Start a block's part of n floats on its way into shared memory; what is behind them becomes 0. */
static __device__ __forceinline__ void fetch_slice(float *slice, const float *from, int32_t n,
                                                   int32_t rank) {
    int32_t first = rank * SLICE;
    bool is_aligned = (uintptr_t)from % 16 == 0;
#pragma unroll
    for (int32_t i = threadIdx.x * 4; i < SLICE; i += THREADS * 4) {
        int32_t left = n - first - i;
        if (left >= 4 && is_aligned) {
            k_fetch_start(slice + slot_of(i), from + first + i);
            continue;
        }
        for (int32_t j = 0; j < 4; j++)
            slice[slot_of(i) + j] = j < left ? __ldcg(from + first + i + j) : 0.0f;
    }
    k_fetch_commit();
}

/* The slot of a token in this block's slice; -1: with another block. */
static __device__ __forceinline__ int32_t place_of(int32_t id, int32_t rank, int32_t n_vocab) {
    if (id < 0 || id >= n_vocab)
        return -1;
    return id / SLICE == rank ? slot_of(id % SLICE) : -1;
}

static __device__ __forceinline__ int32_t occurrences(const struct ft_choice_row &row,
                                                      const int32_t *drafted, int32_t id) {
    int32_t n = 0;
    for (int32_t j = 0; j < row.n_drafted; j++)
        n += drafted[j] == id;
    return n;
}

static __device__ __forceinline__ int4 load_edit(const struct choose_args &a,
                                                 const struct ft_choice_row &row, int32_t i) {
    return __ldcg((const int4 *)(a.op.edits + row.first_edit + i));
}

/* Drafted tokens count as output. Most are in no edit: those are marked in is_edited by the threads
 * that meet them, and the rest is changed afterwards. raw: this thread's first edit. */
static __device__ __forceinline__ void edit_slice(const struct choose_args &a,
                                                  const struct ft_choice_row &row, int32_t rank,
                                                  struct shared &s, int4 raw) {
    for (int32_t i = threadIdx.x; i < row.n_edits; i += THREADS) {
        if (i >= THREADS)
            raw = load_edit(a, row, i);
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
        int32_t id = __ldcg(allowed + i), at = id % SLICE;
        if (place_of(id, rank, row.n_vocab) >= 0)
            atomicOr(&s.is_allowed[at / 32], 1u << at % 32);
    }
    __syncthreads();
    for (int32_t i = threadIdx.x; i < SLICE; i += THREADS)
        if ((s.is_allowed[i / 32] >> i % 32 & 1) == 0)
            s.slice[slot_of(i)] = -INFINITY;
}

/* Value j of this thread in a slice. */
static __device__ __forceinline__ int32_t own_slot(int j) {
    return threadIdx.x / LANES * (BLOCK + LANES) + threadIdx.x % LANES + j * LANES;
}
static __device__ __forceinline__ int32_t id_of(int32_t rank, int j) {
    return rank * SLICE + threadIdx.x / LANES * BLOCK + threadIdx.x % LANES + j * LANES;
}

/* This thread's values; what is behind the row has no chance. */
static __device__ __forceinline__ bool read_slice(const struct ft_choice_row &row, int32_t rank,
                                                  const struct shared &s, float x[VALUES]) {
    bool is_bad = false;
#pragma unroll
    for (int j = 0; j < VALUES; j++) {
        x[j] = id_of(rank, j) < row.n_vocab ? s.slice[own_slot(j)] : -INFINITY;
        is_bad |= !(x[j] < INFINITY);
    }
    return is_bad;
}

/* This thread's values, edited. Returns whether a logit is none. */
static __device__ __forceinline__ bool load_row(const struct choose_args &a,
                                                const struct ft_choice_row &row, int32_t rank,
                                                struct shared &s, float x[VALUES]) {
    int4 raw = make_int4(0, 0, 0, 0);
    bool is_masked = row.n_banned > 0 || row.n_allowed > 0, is_bad = false;
    int32_t drafted = 0;
    if ((int32_t)threadIdx.x < row.n_drafted)
        drafted = __ldcg(row.drafted + threadIdx.x);
    if ((int32_t)threadIdx.x < row.n_edits)
        raw = load_edit(a, row, threadIdx.x);
    fetch_slice(s.slice, row.logits, row.n_vocab, rank);
    if (row.kind == FT_CHOICE_SPECULATE && row.q != NULL) {
        fetch_slice(s.q, row.q, row.n_q, rank);
        if (threadIdx.x == 0)
            s.q_draft = row.draft >= 0 && row.draft < row.n_q ? __ldcg(row.q + row.draft) : 0.0f;
        k_fetch_wait_all_but_last();
    } else {
        k_fetch_wait();
    }
    if ((int32_t)threadIdx.x < row.n_drafted) {
        s.drafted[threadIdx.x] = drafted;
        s.is_edited[threadIdx.x] = 0;
    }
    __syncthreads();
    if (is_masked) { /* a mask may not hide what is no logit */
        is_bad = read_slice(row, rank, s, x);
        __syncthreads();
    }
    if (row.n_edits > 0 || (row.has_penalties && row.n_drafted > 0))
        edit_slice(a, row, rank, s, raw);
    if (is_masked) {
        mask_slice(a, row, rank, s);
        __syncthreads();
    }
    return read_slice(row, rank, s, x) || is_bad;
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

/* Sum of all values in the order of ft_rowmath_sum: the blocks' of a group, then the groups'. A
 * cluster's block has whole groups, of which it tells the others the sums. */
struct row_sum {
    double total;
    double upto; /* of groups 0 .. lane */
};

/* Sums of this thread's block of 256, for s.upto. */
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
static __device__ __forceinline__ struct row_sum sum_groups(cg::cluster_group &cluster,
                                                            struct shared &s, int &turn) {
    int32_t lane = threadIdx.x % 32, n_blocks = (int32_t)cluster.num_blocks();
    turn ^= 1;
    if (threadIdx.x < 32) {
        double sum = 0.0;
        double *upto = s.upto + lane * (GROUP + 1);
        if (lane < OWN_GROUPS)
#pragma unroll 8
            for (int i = 0; i < GROUP; i++) {
                sum = __dadd_rn(sum, upto[i]);
                upto[i] = sum;
            }
        sum = __shfl_sync(0xFFFFFFFFu, sum, lane % OWN_GROUPS);
        if (lane < n_blocks * OWN_GROUPS)
            cluster.map_shared_rank(&s, lane / OWN_GROUPS)
                ->groups[turn][cluster.block_rank() * OWN_GROUPS + lane % OWN_GROUPS] = sum;
    }
    cluster.sync();
    struct row_sum sum = {0.0, 0.0};
#pragma unroll 8
    for (int g = 0; g < n_blocks * OWN_GROUPS; g++)
        if (g <= lane)
            sum.upto = __dadd_rn(sum.upto, s.groups[turn][g]);
    sum.total = __shfl_sync(0xFFFFFFFFu, sum.upto, n_blocks * OWN_GROUPS - 1);
    return sum;
}

static __device__ __forceinline__ double sum_row(cg::cluster_group &cluster, struct shared &s,
                                                 const float x[VALUES], int &turn) {
    sum_blocks(s, x);
    return sum_groups(cluster, s, turn).total;
}

struct weighing {
    float max, scale, cut;
};

static __device__ __forceinline__ float weigh(const struct weighing &w, float x) {
    float z = __fmul_rn(__fsub_rn(x, w.max), w.scale);
    float e = exp_in_range(z >= EXP_MIN ? z : EXP_MIN);
    return z >= EXP_MIN && x >= w.cut ? e : 0.0f;
}

/* Where top-k cuts, and what may lie above it as gathered keys. Returns how many; -1: they are not
 * gathered. bound: at least k values reach it. */
static __device__ __forceinline__ int32_t cut_top_k(cg::cluster_group &cluster, struct shared &s,
                                                    int32_t k, float bound, const float x[VALUES],
                                                    float *cut) {
    int32_t n = gather(cluster, s, x, reaching(x, bound));
    if (n < 0)
        *cut = value_of(select_from_all(cluster, s, x, -INFINITY, (uint64_t)k, false));
    else if (n > PAIRS_MAX) /* a selection of so many loses them */
        *cut = value_of(select_gathered(s, n, (uint64_t)k, false)), n = -1;
    else if (n >= k)
        *cut = value_of(find_value(s, n, (uint64_t)k, false));
    return n;
}

/* The smallest weight in the nucleus, of weights whose sum is known. n: how many logits have been
 * gathered among which all that have a weight are; -1: they have not been. */
static __device__ __forceinline__ float cut_top_p(cg::cluster_group &cluster, struct shared &s,
                                                  const struct ft_choice_row &row, double sum,
                                                  const struct weighing &w, int32_t n,
                                                  const float x[VALUES]) {
    double bound = (1.0 - (double)row.top_p) * sum / (double)row.n_vocab * 0.999;
    float least = bound > (double)FLT_LEAST ? (float)bound : FLT_LEAST;
    uint64_t want = fixed_point((double)row.top_p * sum);
    for (int32_t i = threadIdx.x; i < n; i += THREADS) {
        float e = weigh(w, value_of(s.gathered[i]));
        s.gathered[i] = key_of(e >= least ? e : 0.0f); /* no weight, so never at the cut */
    }
    if (n < 0)
        n = gather(cluster, s, x, reaching(x, least));
    else
        __syncthreads();
    return value_of(n < 0 ? select_from_all(cluster, s, x, least, want, true)
                          : select_gathered(s, n, want, true));
}

/* As ft_transform_row, of values that are edited already. top_bound: see find_max. */
static __device__ __forceinline__ void distribute(cg::cluster_group &cluster, struct shared &s,
                                                  const struct ft_choice_row &row, float max,
                                                  float top_bound, int &turn, float x[VALUES]) {
    struct weighing w = {max, __fdiv_rn(1.0f, row.temperature), -INFINITY};
    int32_t n_gathered = -1;
    bool is_cut = row.top_k > 0 && row.top_k < row.n_vocab;
    if (is_cut)
        n_gathered = cut_top_k(cluster, s, row.top_k, top_bound, x, &w.cut);
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        if (!is_cut || __any_sync(0xFFFFFFFFu, x[j] >= w.cut)) /* few warps have any, then */
            x[j] = weigh(w, x[j]);
        else
            x[j] = 0.0f;
    double sum = 0.0;
    float threshold = row.min_p;
    k_fetch_wait(); /* for q, which all have behind the barriers of the next sum */
    if (row.top_p < 1.0f || !(threshold > 0.0f))
        sum = sum_row(cluster, s, x, turn);
    if (row.top_p < 1.0f) {
        float nucleus = cut_top_p(cluster, s, row, sum, w, n_gathered, x);
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

/* ---- draws */

/* In the block of 256 tokens that half a warp has, past what lies before it: the first that takes
 * the sum past aim, runs of 16 at a time; the last with a probability when rounding ends before.
 * By one warp, whose lanes from first are those of the block; -1: none has a probability. */
static __device__ __forceinline__ int32_t walk(struct shared &s, const float x[VALUES],
                                               int32_t first, double before, double aim) {
    int32_t lane = threadIdx.x % 32, at = lane - first;
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
static __device__ __forceinline__ bool draw(int32_t rank, struct shared &s, const float x[VALUES],
                                            const struct row_sum &sum, int32_t n_groups, double u,
                                            int32_t *token) {
    int32_t lane = threadIdx.x % 32;
    double aim = __dmul_rn(u, sum.total);
    uint32_t met = __ballot_sync(0xFFFFFFFFu, lane < n_groups && sum.upto > aim);
    if (met == 0)
        return rank == 0 && threadIdx.x == 0;
    int32_t group = __ffs((int)met) - 1, own = group % OWN_GROUPS;
    double before = __shfl_sync(0xFFFFFFFFu, sum.upto, group > 0 ? group - 1 : 0);
    before = group > 0 ? before : 0.0;
    if (group / OWN_GROUPS != rank)
        return false;
    double upto = __dadd_rn(before, s.upto[own * (GROUP + 1) + lane]);
    int32_t block = __ffs((int)__ballot_sync(0xFFFFFFFFu, upto > aim)) - 1;
    upto = __shfl_sync(0xFFFFFFFFu, upto, block > 0 ? block - 1 : 0);
    before = block > 0 ? upto : before;
    block += own * GROUP;
    if ((int32_t)threadIdx.x / 32 != block * LANES / 32)
        return false;
    int32_t at = walk(s, x, block * LANES % 32, before, aim);
    *token = at < 0 ? -1 : rank * SLICE + block * BLOCK + at;
    return lane == 0;
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
    int32_t rank = (int32_t)cluster.block_rank(), n_blocks = (int32_t)cluster.num_blocks();
    float lenience = row.lenience, mass = 0.0f;
    if (row.q == NULL) {
#pragma unroll
        for (int j = 0; j < VALUES; j++)
            if (id_of(rank, j) == row.draft)
                x[j] = fmaxf(__fsub_rn(x[j], lenience), 0.0f);
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
    for (int32_t id = n_blocks * SLICE + rank * THREADS + threadIdx.x; id < row.n_q;
         id += n_blocks * THREADS) { /* the draft may have far more tokens */
        float q = __ldcg(row.q + id);
        is_valid = is_valid && q >= 0.0f && q < INFINITY;
        mass = __fadd_rn(mass, q);
    }
    mass = k_warp_sum(is_valid ? mass : NAN);
    if (threadIdx.x % 32 == 0)
        s.warp_masses[threadIdx.x / 32] = mass;
}

/* What take_off has added up goes to all blocks, before the cluster syncs. By the second warp,
 * since the first is busy with sums. */
static __device__ __forceinline__ void send_mass(cg::cluster_group &cluster, struct shared &s) {
    int32_t lane = threadIdx.x % 32;
    if (threadIdx.x / 32 != 1)
        return;
    float mass = k_warp_sum(s.warp_masses[lane]);
    if (lane < (int32_t)cluster.num_blocks())
        cluster.map_shared_rank(&s, lane)->masses[cluster.block_rank()] = mass;
}
static __device__ __forceinline__ bool is_distribution(const cg::cluster_group &cluster,
                                                       const struct shared &s) {
    double sum = 0.0;
    for (unsigned r = 0; r < cluster.num_blocks(); r++)
        sum += (double)s.masses[r];
    return fabs(sum - 1.0) <= Q_SUM_SLACK;
}

/* Returns whether this thread is the one that has the token. */
static __device__ __forceinline__ bool decide(cg::cluster_group &cluster, struct shared &s,
                                              const struct ft_choice_row &row, int &turn,
                                              float x[VALUES], struct ft_choice_result &out) {
    int32_t rank = (int32_t)cluster.block_rank();
    if (row.kind == FT_CHOICE_GUMBEL) {
        out.token = gumbel(cluster, s, row, x);
        return rank == 0 && threadIdx.x == 0;
    }
    bool has_draft = row.kind == FT_CHOICE_SPECULATE;
    if (has_draft) {
        /* p of the draft: where it is no token, nothing is accepted */
#pragma unroll
        for (int j = 0; j < VALUES; j++)
            if (id_of(rank, j) == row.draft)
                for (unsigned r = 0; r < cluster.num_blocks(); r++)
                    cluster.map_shared_rank(&s, r)->p_draft = x[j];
        take_off(cluster, s, row, x);
    }
    sum_blocks(s, x);
    if (has_draft && row.q != NULL)
        send_mass(cluster, s);
    struct row_sum sum = sum_groups(cluster, s, turn);
    if (has_draft) {
        double q = row.q != NULL ? (double)s.q_draft : 1.0;
        double u_q = __dmul_rn(row.u_accept, __dmul_rn(q, (double)row.lenience));
        bool is_known = row.draft >= 0 && row.draft < row.n_vocab;
        if (!(q > 0.0 && q <= 1.0 + Q_SUM_SLACK))
            out.status = FT_CHOICE_ASK;
        else if (row.q != NULL && !is_distribution(cluster, s))
            out.status = FT_CHOICE_BAD_Q;
        out.is_accepted = is_known && u_q < (double)s.p_draft;
    }
    /* Nothing left: p <= q everywhere up to rounding, and the host draws from p. */
    if (!(sum.total > 0.0))
        return rank == 0 && threadIdx.x == 0;
    return draw(rank, s, x, sum, (int32_t)cluster.num_blocks() * OWN_GROUPS, row.u_draw,
                &out.token);
}

/* ---- the kernel */

static __device__ __forceinline__ void cluster_arrive(void) {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
static __device__ __forceinline__ void cluster_wait(void) {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* The row's largest value, in every thread; whether any block has met what is no logit; and a bound
 * that at least top_k values reach: when so many of the first blocks' warps have each a value that
 * does. */
static __device__ __forceinline__ float find_max(cg::cluster_group &cluster, struct shared &s,
                                                 const struct ft_choice_row &row,
                                                 const float x[VALUES], bool *is_bad,
                                                 float *bound) {
    int32_t n_blocks = (int32_t)cluster.num_blocks(), lane = threadIdx.x % 32;
    int32_t n_full = row.n_vocab / SLICE > 1 ? row.n_vocab / SLICE : 1;
    float max = -INFINITY;
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        max = fmaxf(max, x[j]);
    uint32_t top = __reduce_max_sync(0xFFFFFFFFu, key_of(*is_bad ? INFINITY : max));
    if (lane == 0)
        s.warp_tops[threadIdx.x / 32] = top;
    __syncthreads();
    if (threadIdx.x < 32) {
        int32_t n_wanted = (row.top_k + n_full - 1) / n_full, n_reaching = 0;
        uint32_t own = s.warp_tops[lane];
#pragma unroll
        for (int w = 0; w < THREADS / 32; w += 4) {
            uint4 tops = *(const uint4 *)(s.warp_tops + w);
            n_reaching += (tops.x >= own) + (tops.y >= own) + (tops.z >= own) + (tops.w >= own);
        }
        top = __reduce_max_sync(0xFFFFFFFFu, own);
        own = __reduce_max_sync(0xFFFFFFFFu, n_reaching >= n_wanted ? own : 0);
        if (lane < n_blocks)
            cluster.map_shared_rank(&s, lane)->tops[cluster.block_rank()] = make_uint2(top, own);
    }
    cluster.sync();
    uint32_t least = 0xFFFFFFFFu;
    top = 0;
    for (int32_t r = 0; r < n_blocks; r++) {
        uint2 tops = s.tops[r];
        top = tops.x > top ? tops.x : top;
        least = r < n_full && tops.y < least ? tops.y : least;
    }
    max = value_of(top);
    *is_bad = max == INFINITY;
    *bound = least > key_of(-INFINITY) ? value_of(least) : -FLT_LARGEST;
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

static __device__ __forceinline__ void publish(const struct choose_args &a,
                                               const struct ft_choice_row &row, int32_t idx,
                                               struct ft_choice_result out) {
    if (out.token < 0 && !out.is_accepted && out.status == FT_CHOICE_OK)
        out.status = FT_CHOICE_ASK;
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
    clear_buckets(s);
    if (threadIdx.x == 0)
        s.n_own = 0;
    __syncthreads();
    const struct ft_choice_row &row = s.row;
    int turn = 0;
    float x[VALUES], bound;
    bool is_bad = load_row(a, row, rank, s, x);
    cluster_wait(); /* nobody writes to a block that has not begun */
    float max = find_max(cluster, s, row, x, &is_bad, &bound);
    struct ft_choice_result out = {FT_CHOICE_OK, -1, 0, a.op.stamp};
    bool is_told = rank == 0 && threadIdx.x == 0; /* what has been decided */
    if (is_bad || max == -INFINITY) {
        out.status = FT_CHOICE_ASK;
    } else if (row.kind == FT_CHOICE_GREEDY) {
        out.token = find_first(cluster, s, x, max);
    } else {
        distribute(cluster, s, row, max, bound, turn, x);
        if (row.probs != NULL)
#pragma unroll
            for (int j = 0; j < VALUES; j++)
                if (id_of(rank, j) < row.n_vocab)
                    row.probs[id_of(rank, j)] = x[j];
        is_told = decide(cluster, s, row, turn, x, out);
    }
    if (is_told)
        publish(a, row, idx, out);
    k_fetch_wait();
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
