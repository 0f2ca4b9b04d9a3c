#include "common/gpu/cpu/cpu.h"

#include <math.h>
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
};

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
    /* reading a weight costs as much as ten products with it */
    int64_t cost = (int64_t)FT_ISA_ROW_GROUP * op->n_in * (10 + op->n_rows) / 8;
    ft_pool_run(of(device)->pool, of(device)->isa->linear, op, ft_isa_linear_items(op),
                grain(cost));
}

static void cpu_rope(struct ft_device *device, const struct ft_op_rope *op) {
    int64_t cost = (op->n_heads + 10LL * op->kv.n_heads) * op->kv.head_dim * COST_PER_NUMBER;
    ft_pool_run(of(device)->pool, of(device)->isa->rope, op, op->n_rows, grain(cost));
}

static void cpu_attention(struct ft_device *device, const struct ft_op_attention *op) {
    int64_t n_positions = 0, n_items = ft_isa_attention_items(op);
    for (int32_t i = 0; i < op->n_spans; i++)
        n_positions += op->spans[i].position + op->spans[i].n_rows;
    int64_t cost = n_positions * op->kv.n_heads * op->kv.head_dim * 2 / n_items;
    ft_pool_run(of(device)->pool, of(device)->isa->attention, op, (int32_t)n_items, grain(cost));
}

static const struct ft_ops cpu_ops = {cpu_gather, cpu_angles, cpu_rmsnorm,
                                      cpu_linear, cpu_rope,   cpu_attention};

static const struct ft_isa *find_isa(const char *variant, struct ft_err *err) {
    char known[64] = "";
    const struct ft_isa *isa;
    for (size_t i = 0; (isa = ft_isa_at(i)) != NULL; i++) {
        if (variant[0] == '\0' || strcmp(variant, isa->name) == 0)
            return isa;
        size_t len = strlen(known);
        snprintf(known + len, sizeof known - len, "%s%s", i == 0 ? "" : ", ", isa->name);
    }
    ft_err_set(err, FT_E_PROC_CONFIG, "cpu", "device variant is \"%s\"; this machine can run %s",
               variant, known);
    return NULL;
}

static enum ft_code cpu_open(struct ft_device **out, const char *variant,
                             const struct ft_device_opts *opts, struct ft_err *err) {
    const struct ft_isa *isa = find_isa(variant, err);
    if (isa == NULL)
        return FT_E_PROC_CONFIG;
    struct cpu_device *cpu = calloc(1, sizeof *cpu);
    if (cpu == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "cpu", "no memory for the device");
    enum ft_code code = ft_pool_create(&cpu->pool, opts->n_threads, opts->idle_spin_us, err);
    if (code != FT_OK) {
        free(cpu);
        return code;
    }
    cpu->device.kind = &ft_cpu_device;
    cpu->isa = isa;
    cpu->page_bytes = sysconf(_SC_PAGESIZE);
    *out = &cpu->device;
    return FT_OK;
}

static void cpu_close(struct ft_device *device) {
    ft_pool_destroy(&of(device)->pool);
    free(device);
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

static enum ft_code cpu_sync(struct ft_device *device, struct ft_err *err) {
    (void)device;
    (void)err;
    return FT_OK; /* every operation has run when it returns */
}

const struct ft_device_kind ft_cpu_device = {
    .name = "cpu",
    .ops = &cpu_ops,
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .alloc = cpu_alloc,
    .place = cpu_place,
    .give_back = cpu_give_back,
    .copy = cpu_copy,
    .sync = cpu_sync,
};
