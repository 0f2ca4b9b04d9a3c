#include "common/gpu/cpu/cpu.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/gpu/cpu/isa.h"
#include "common/gpu/cpu/pool.h"

struct cpu_device {
    struct ft_device device;
    const struct ft_isa *isa;
    struct ft_pool *pool;
    int64_t page_bytes;
    float *parts;            /* PARTS_BYTES, for attention that is cut by stretches */
    _Atomic int32_t *n_left; /* [PORTIONS_MAX] */
    size_t placed_bytes;
};

/* Room for partial results of attention. An operation that needs more is not cut by stretches,
 * which is a matter of speed alone; it has work enough for many threads then. */
#define PARTS_BYTES ((size_t)4 << 20)
#define PORTIONS_MAX 8192

/* Weights of more than this pass through the last-level cache in every step and find nothing of
 * their own there: they are read so that they push out nobody else's, the draft's above all. A
 * third of a common share of that cache; machines report it wrongly to their guests. */
#define STREAMED_BYTES ((size_t)32 << 20)

static struct cpu_device *of(struct ft_device *device) {
    return (struct cpu_device *)device;
}

/* A piece of work should be worth a hand-over between cores. The prices below are of a core of
 * 2024, in tenths of a nanosecond: an order of magnitude is enough. */
#define PIECE_COST 15000
#define COST_PER_NUMBER 1   /* that is read, changed and written in a cache */
#define COST_PER_COSINE 100 /* with its sine */

static int32_t grain(int64_t cost_per_item) {
    int64_t n = 1 + PIECE_COST / (cost_per_item > 0 ? cost_per_item : 1);
    return n < INT32_MAX ? (int32_t)n : INT32_MAX;
}

static void cpu_gather(struct ft_device *device, const struct ft_op_gather *op) {
    ft_pool_run(of(device)->pool, of(device)->isa->gather, op, op->n_rows,
                grain(op->n_cols * COST_PER_NUMBER));
}

static void angles_rows(const void *arg, int32_t begin, int32_t end) {
    const struct ft_op_angles *op = arg;
    for (int32_t row = begin; row < end; row++) {
        float *out = op->out + (int64_t)row * 2 * op->n_pairs;
        for (int32_t j = 0; j < op->n_pairs; j++) {
            float angle = (float)op->positions[row] * op->inv_freq[j];
            out[j] = cosf(angle);
            out[op->n_pairs + j] = sinf(angle);
        }
    }
}

static void cpu_angles(struct ft_device *device, const struct ft_op_angles *op) {
    ft_pool_run(of(device)->pool, angles_rows, op, op->n_rows,
                grain(op->n_pairs * COST_PER_COSINE));
}

static void cpu_rmsnorm(struct ft_device *device, const struct ft_op_rmsnorm *op) {
    ft_pool_run(of(device)->pool, of(device)->isa->rmsnorm, op, op->n_rows,
                grain(op->n_cols * COST_PER_NUMBER));
}

static void cpu_linear(struct ft_device *device, const struct ft_op_linear *op) {
    struct ft_op_linear normed;
    if (op->norm != NULL) {
        struct ft_op_rmsnorm norm = {op->x, op->norm, op->eps, op->n_rows, op->n_in, op->normed};
        cpu_rmsnorm(device, &norm);
        normed = *op;
        normed.x = op->normed;
        op = &normed;
    }
    /* reading a weight costs as much as ten products with it */
    int64_t cost = (int64_t)FT_ISA_ROW_GROUP * op->n_in * (10 + op->n_rows) / 8;
    struct ft_isa_linear job = {op, of(device)->placed_bytes > STREAMED_BYTES};
    ft_pool_run(of(device)->pool, of(device)->isa->linear, &job, ft_isa_linear_items(op),
                grain(cost));
}

static void cpu_rope(struct ft_device *device, const struct ft_op_rope *op) {
    int32_t n_items = ft_isa_rope_items(op);
    int64_t n_numbers = (int64_t)op->n_rows * (op->n_heads + 10LL * op->kv.n_heads);
    int64_t cost = n_numbers * op->kv.head_dim * COST_PER_NUMBER / n_items;
    ft_pool_run(of(device)->pool, of(device)->isa->rope, op, n_items, grain(cost));
}

/* With so many items a thread there is no need for smaller ones. */
#define ITEMS_PER_THREAD 8
#define ITEMS_PER_THREAD_MIN 3

static int32_t count_portions(const struct ft_isa_attention *job) {
    int32_t n = 0;
    for (int32_t i = 0; i < job->op->n_spans; i++)
        n += ft_isa_span_portions(job, &job->op->spans[i]);
    return n;
}

static int32_t count_items(const struct ft_isa_attention *job) {
    int32_t n = 0;
    for (int32_t i = 0; i < job->op->n_spans; i++)
        n += ft_isa_span_items(job, &job->op->spans[i]);
    return n;
}

/* Parts per query that the operation can be cut into; 0: there is no room for them. */
static int32_t stretches_of(const struct ft_op_attention *op) {
    int32_t n_max = 0;
    size_t n_rows = 0;
    for (int32_t i = 0; i < op->n_spans; i++) {
        int32_t first, n;
        ft_isa_span_stretches(op, &op->spans[i], &first, &n);
        n_max = n > n_max ? n : n_max;
        n_rows += (size_t)op->spans[i].n_rows;
    }
    size_t query_bytes =
        (size_t)n_max * (size_t)ft_isa_part_floats(op->kv.head_dim) * sizeof(float);
    return n_rows * (size_t)op->n_heads * query_bytes <= PARTS_BYTES ? n_max : 0;
}

/* Few rows share their reads of keys and values, and are cut by positions to give every thread
 * its share; where that is not enough they are cut into fewer queries as well. */
static struct ft_isa_attention cut_attention(struct cpu_device *cpu,
                                             const struct ft_op_attention *op) {
    struct ft_isa_attention job = {.op = op, .parts = cpu->parts, .n_left = cpu->n_left};
    int32_t n_threads = ft_pool_n_threads(cpu->pool);
    if (n_threads == 1)
        return job;
    if (count_items(&job) < ITEMS_PER_THREAD * n_threads)
        job.n_stretches = stretches_of(op);
    job.small = count_items(&job) < ITEMS_PER_THREAD_MIN * n_threads;
    if (count_portions(&job) > PORTIONS_MAX)
        job.n_stretches = 0;
    int32_t at = 0;
    for (int32_t i = 0; job.n_stretches > 0 && i < op->n_spans; i++) {
        int32_t first, n, n_portions = ft_isa_span_portions(&job, &op->spans[i]);
        ft_isa_span_stretches(op, &op->spans[i], &first, &n);
        while (n_portions-- > 0)
            atomic_store_explicit(&job.n_left[at++], n, memory_order_relaxed);
    }
    return job;
}

static void cpu_attention(struct ft_device *device, const struct ft_op_attention *op) {
    struct ft_isa_attention job = cut_attention(of(device), op);
    int64_t n_positions = 0, n_items = count_items(&job);
    for (int32_t i = 0; i < op->n_spans; i++)
        n_positions += op->spans[i].position + op->spans[i].n_rows;
    int64_t cost = n_positions * op->kv.n_heads * op->kv.head_dim * 2 / n_items;
    ft_pool_run(of(device)->pool, of(device)->isa->attention, &job, (int32_t)n_items, grain(cost));
}

#define READ_PIECE 65536 /* bytes */

static volatile uint64_t read_sink;

static void read_pieces(const void *arg, int32_t begin, int32_t end) {
    const struct ft_op_read *op = arg;
    uint64_t sums[8] = {0}, words[8];
    size_t to = (size_t)end * READ_PIECE;
    to = to < op->bytes ? to : op->bytes;
    for (size_t at = (size_t)begin * READ_PIECE; at + sizeof words <= to; at += sizeof words) {
        memcpy(words, (const char *)op->memory + at, sizeof words);
        for (int i = 0; i < 8; i++)
            sums[i] += words[i];
    }
    read_sink = sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}

static void cpu_read(struct ft_device *device, const struct ft_op_read *op) {
    ft_pool_run(of(device)->pool, read_pieces, op, (int32_t)(op->bytes / READ_PIECE) + 1, 1);
}

static void cpu_choose(struct ft_device *device, const struct ft_op_choose *op) {
    (void)device;
    (void)op;
    FT_ASSERT(false && "rows in the host's memory are decided by spec");
}

static bool cpu_step(struct ft_device *device, const struct ft_op_step *op) {
    (void)device;
    (void)op;
    return false;
}

static const struct ft_ops cpu_ops = {cpu_gather,    cpu_angles, cpu_rmsnorm, cpu_linear, cpu_rope,
                                      cpu_attention, cpu_read,   cpu_choose,  cpu_step};

static const struct ft_isa *find_isa(const char *variant, struct ft_err *err) {
    char known[64] = "";
    const struct ft_isa *isa;
    for (size_t i = 0; (isa = ft_isa_at(i)) != NULL; i++) {
        if (variant[0] == '\0' || strcmp(variant, isa->name) == 0)
            return isa;
        size_t len = strlen(known);
        snprintf(known + len, sizeof known - len, "%s%s", i == 0 ? "" : ", ", isa->name);
    }
    ft_err_set(err, FT_E_PROC_CONFIG, "cpu", "device is \"cpu:%s\"; this machine can run %s",
               variant, known);
    return NULL;
}

static enum ft_code cpu_check(const char *variant, struct ft_err *err) {
    return find_isa(variant, err) != NULL ? FT_OK : FT_E_PROC_CONFIG;
}

static void free_device(struct cpu_device *cpu) {
    free(cpu->parts);
    free((void *)cpu->n_left);
    free(cpu);
}

static enum ft_code cpu_open(struct ft_device **out, const char *variant,
                             const struct ft_device_opts *opts, struct ft_err *err) {
    const struct ft_isa *isa = find_isa(variant, err);
    if (isa == NULL)
        return FT_E_PROC_CONFIG;
    struct cpu_device *cpu = calloc(1, sizeof *cpu);
    if (cpu == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "cpu", "no memory for the device");
    cpu->device.kind = &ft_cpu_device;
    cpu->parts = aligned_alloc(64, PARTS_BYTES); /* pages are taken when first written */
    cpu->n_left = calloc(PORTIONS_MAX, sizeof *cpu->n_left);
    enum ft_code code = FT_OK;
    if (cpu->parts == NULL || cpu->n_left == NULL)
        code = ft_err_set(err, FT_E_PROC_MEMORY, "cpu", "no memory for the device");
    else
        code = ft_pool_create(&cpu->pool, opts->n_threads, opts->idle_spin_us, err);
    if (code != FT_OK) {
        free_device(cpu);
        return code;
    }
    cpu->isa = isa;
    cpu->page_bytes = sysconf(_SC_PAGESIZE);
    *out = &cpu->device;
    return FT_OK;
}

static void cpu_close(struct ft_device *device) {
    ft_pool_destroy(&of(device)->pool);
    free_device(of(device));
}

static void cpu_describe(const struct ft_device *device, char text[FT_DEVICE_TEXT_MAX]) {
    const struct cpu_device *cpu = (const struct cpu_device *)device;
    int32_t n = ft_pool_n_threads(cpu->pool);
    snprintf(text, FT_DEVICE_TEXT_MAX, "cpu %s, %d thread%s", cpu->isa->name, n, n == 1 ? "" : "s");
}

/* Memory of the kernel's own, zero, huge pages where it has some: KV is mostly never written. */
static enum ft_code cpu_alloc(struct ft_device *device, size_t bytes, void **out,
                              struct ft_err *err) {
    (void)device;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return ft_err_set(err, FT_E_PROC_MEMORY, "cpu", "no memory for %zu bytes", bytes);
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    *out = memory;
    return FT_OK;
}

static enum ft_code cpu_place(struct ft_device *device, const void *host, size_t bytes,
                              const void **out, struct ft_err *err) {
    (void)err;
    /* Fault the pages in now rather than in the first step. Where the kernel does not know how,
     * they fault in then. */
    uintptr_t page = (uintptr_t)of(device)->page_bytes, begin = (uintptr_t)host & ~(page - 1);
    uintptr_t end = (uintptr_t)host + bytes;
    (void)madvise((void *)begin, end - begin, MADV_POPULATE_READ);
    of(device)->placed_bytes += bytes;
    *out = host;
    return FT_OK;
}

static void cpu_give_back(struct ft_device *device, void *memory, size_t bytes) {
    (void)device;
    if (memory != NULL)
        munmap(memory, bytes);
}

static void cpu_copy(struct ft_device *device, void *to, const void *host, size_t bytes) {
    (void)device;
    memcpy(to, host, bytes);
}

static void cpu_fetch(struct ft_device *device, void *host, const void *from, size_t bytes) {
    (void)device;
    memcpy(host, from, bytes);
}

static bool cpu_pin(struct ft_device *device, void *host, size_t bytes) {
    (void)device;
    (void)host;
    (void)bytes;
    return true;
}

static void cpu_unpin(struct ft_device *device, void *host) {
    (void)device;
    (void)host;
}

static bool cpu_begin(struct ft_device *device, const struct ft_device_key *key) {
    (void)device;
    (void)key;
    return false; /* calling an operation costs next to nothing */
}

static bool cpu_note(struct ft_device *device, const struct ft_device_key *key) {
    (void)device;
    (void)key;
    return false;
}

static bool cpu_gave_up(struct ft_device *device) {
    (void)device;
    return false;
}

static bool cpu_end(struct ft_device *device) {
    (void)device;
    return true;
}

static void cpu_uuid(const struct ft_device *device, char text[FT_DEVICE_UUID_MAX]) {
    (void)device;
    text[0] = '\0';
}

static enum ft_code cpu_share(struct ft_device *device, size_t bytes, void **out,
                              struct ft_device_handle *handle, struct ft_err *err) {
    (void)device;
    (void)out;
    (void)handle;
    return ft_err_set(err, FT_E_PROC_OS, "cpu",
                      "%zu bytes to share: what processes share of the host is shared memory",
                      bytes);
}

static enum ft_code cpu_open_shared(struct ft_device *device, const struct ft_device_handle *handle,
                                    size_t bytes, void **out, struct ft_err *err) {
    (void)device;
    (void)handle;
    (void)out;
    return ft_err_set(err, FT_E_PEER_PROTOCOL, "cpu",
                      "%zu bytes of a GPU's memory: the host's processors cannot read them", bytes);
}

static void cpu_close_shared(struct ft_device *device, void *memory) {
    (void)device;
    FT_ASSERT(memory == NULL);
}

static enum ft_code cpu_sync(struct ft_device *device, struct ft_err *err) {
    (void)device;
    (void)err;
    return FT_OK; /* every operation has run when it returns */
}

const struct ft_device_kind ft_cpu_device = {
    .name = "cpu",
    .is_host = true,
    .ops = &cpu_ops,
    .check = cpu_check,
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .alloc = cpu_alloc,
    .place = cpu_place,
    .give_back = cpu_give_back,
    .copy = cpu_copy,
    .fetch = cpu_fetch,
    .pin = cpu_pin,
    .unpin = cpu_unpin,
    .begin = cpu_begin,
    .end = cpu_end,
    .note = cpu_note,
    .gave_up = cpu_gave_up,
    .uuid = cpu_uuid,
    .share = cpu_share,
    .open_shared = cpu_open_shared,
    .close_shared = cpu_close_shared,
    .sync = cpu_sync,
};
