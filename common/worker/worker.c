#include "common/worker/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/supervisor.h"
#include "common/kv/kvlayout.h"
#include "common/worker/step.h"
#include "common/worker/warm.h"

#define MODULE "worker"

/* Sequences that may be held, in multiples of those of one step: a step need not name all of them,
 * and one that is released by a call of its own may go after its successor came. */
#define SEQS_PER_STEP_SEQ 4

/* Smaller models are there before a line could be read. */
#define LOAD_SAID_BYTES ((uint64_t)1 << 30)
/* systemd's patience with a tenth of a load: a slow disk gives 100 GB in ten of these. */
#define LOAD_GRACE_US 600000000LL

enum ft_code ft_worker_check_params(const struct ft_worker_params *params, struct ft_err *err) {
    if (params->model[0] == 0)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "model is not set: give --model DIR");
    if (params->kv_cache_bytes <= 0)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "kv_cache_bytes is %lld: must be at least 1",
                          (long long)params->kv_cache_bytes);
    const struct ft_kvlayout *layout = ft_kvlayout_find(params->kv_layout);
    if (layout == NULL)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "kv_layout is '%s': must be paged or slotted", params->kv_layout);
    if (params->enable_prefix_caching && !layout->shares_blocks)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "kv_layout is %s, which has no prefix cache: set "
                          "enable_prefix_caching to false",
                          layout->name);
    return FT_OK;
}

static int32_t step_rows_max(const struct ft_worker_role *role,
                             const struct ft_worker_params *params) {
    if (params->max_step_rows > 0)
        return params->max_step_rows;
    return params->max_num_seqs * role->rows_per_seq;
}

static enum ft_code read_fingerprint(const char *dir,
                                     unsigned char out[FT_TOKENIZER_FINGERPRINT_BYTES],
                                     struct ft_err *err) {
    struct ft_tokenizer *tokenizer = NULL;
    enum ft_code code = ft_tokenizer_open(&tokenizer, dir, err);
    if (code != FT_OK)
        return code;
    memcpy(out, ft_tokenizer_fingerprint(tokenizer), FT_TOKENIZER_FINGERPRINT_BYTES);
    ft_tokenizer_close(&tokenizer);
    return FT_OK;
}

/* A line for each tenth of the weights, so that a long load shows how far it is. */
static void say_progress(void *user, uint64_t done, uint64_t total) {
    struct ft_worker *worker = user;
    char line[128];
    int32_t tenths = (int32_t)(done * 10 / (total > 0 ? total : 1));
    if (tenths <= worker->load_tenths || total < LOAD_SAID_BYTES)
        return;
    worker->load_tenths = tenths;
    snprintf(line, sizeof line, "loading weights_mb %llu of_mb %llu",
             (unsigned long long)(done >> 20), (unsigned long long)(total >> 20));
    worker->role->notify(FT_LOG_INFO, line);
    ft_supervisor_notify("EXTEND_TIMEOUT_USEC=%lld\nSTATUS=%s", LOAD_GRACE_US, line);
}

static struct ft_model_opts model_opts(const struct ft_worker_role *role,
                                       const struct ft_worker_params *params) {
    int32_t n_rows = step_rows_max(role, params);
    return (struct ft_model_opts){
        .dir = params->model,
        .device = params->device,
        .n_threads = params->num_threads,
        .max_model_len = params->max_model_len,
        .kv_bytes = params->kv_cache_bytes,
        .max_step_tokens = params->max_num_batched_tokens,
        /* A draft step wants one row of each sequence, however small its share of the region. */
        .max_step_rows = n_rows > params->max_num_seqs ? n_rows : params->max_num_seqs,
    };
}

static enum ft_code open_model(struct ft_worker *worker, struct ft_err *err) {
    struct ft_model_opts opts = model_opts(worker->role, worker->params);
    opts.progress = say_progress;
    opts.progress_user = worker;
    enum ft_code code = ft_model_open(&worker->model, &opts, err);
    if (code != FT_OK)
        return code;
    worker->vocab_size = ft_model_config(worker->model)->vocab_size;
    worker->len_max = ft_model_max_len(worker->model);
    if (ft_model_is_apart(worker->model)) {
        struct ft_device *device = ft_model_device(worker->model);
        device->kind->uuid(device, worker->device_uuid);
    }
    return FT_OK;
}

/* The positions of a block in the layout that params name; one fits at least. */
static enum ft_code find_block_tokens(const struct ft_worker_params *params,
                                      const struct ft_model_sizes *sizes, int32_t *block_tokens,
                                      struct ft_err *err) {
    const struct ft_kvlayout *layout = ft_kvlayout_find(params->kv_layout);
    *block_tokens = layout->block_tokens(sizes->max_len, FT_KV_BLOCK_TOKENS);
    if (sizes->kv_blocks >= *block_tokens / FT_KV_BLOCK_TOKENS)
        return FT_OK;
    return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                      "kv_cache_bytes is %lld: it holds %lld positions, and kv_layout %s needs %d "
                      "for one sequence of max_model_len",
                      (long long)params->kv_cache_bytes,
                      (long long)sizes->kv_blocks * FT_KV_BLOCK_TOKENS, layout->name,
                      *block_tokens);
}

enum ft_code ft_worker_check_files(const struct ft_worker_role *role,
                                   const struct ft_worker_params *params,
                                   struct ft_worker_facts *facts, struct ft_err *err) {
    struct ft_model_opts opts = model_opts(role, params);
    struct ft_model_sizes sizes;
    int32_t block_tokens;
    enum ft_code code = ft_model_check(&opts, &sizes, err);
    if (code == FT_OK)
        code = find_block_tokens(params, &sizes, &block_tokens, err);
    if (code != FT_OK)
        return code;
    facts->len_max = sizes.max_len;
    return read_fingerprint(params->model, facts->fingerprint, err);
}

static enum ft_code open_kv(struct ft_worker *worker, struct ft_err *err) {
    struct ft_model_sizes sizes = {.max_len = worker->len_max,
                                   .kv_blocks = ft_model_kv_blocks(worker->model)};
    int32_t block_tokens;
    enum ft_code code = find_block_tokens(worker->params, &sizes, &block_tokens, err);
    if (code != FT_OK)
        return code;
    int32_t n_pages = sizes.kv_blocks, pages_per_block = block_tokens / FT_KV_BLOCK_TOKENS;
    struct ft_kvpool_opts pool_opts = {
        .n_blocks = n_pages / pages_per_block,
        .block_tokens = block_tokens,
        .prefix_caching = worker->params->enable_prefix_caching,
        .seed = worker->epoch,
    };
    code = ft_kvpool_create(&worker->pool, &pool_opts, err);
    if (code != FT_OK)
        return code;
    struct ft_kvseq_opts seq_opts = {
        .pool = worker->pool,
        .n_max = worker->params->max_num_seqs * SEQS_PER_STEP_SEQ,
        .len_max = worker->len_max,
        .page_tokens = FT_KV_BLOCK_TOKENS,
    };
    return ft_kvseq_create(&worker->seqs, &seq_opts, err);
}

static struct ft_region_layout layout_of(const struct ft_worker *worker) {
    return (struct ft_region_layout){worker->epoch, worker->step_rows_max, worker->vocab_size};
}

static enum ft_code make_region(const struct ft_worker *worker,
                                const struct ft_region_memory *memory, struct ft_region **out,
                                struct ft_err *err) {
    struct ft_region_layout layout = layout_of(worker);
    enum ft_code code = ft_region_create_on(out, &layout, memory, err);
    return code == FT_OK ? code : ft_err_prefix(err, "region (max_step_rows %d)", layout.n_rows);
}

/* Everything past the model itself. */
static enum ft_code open_rest(struct ft_worker *worker, struct ft_err *err) {
    enum ft_code code = open_kv(worker, err);
    if (code != FT_OK)
        return code;
    worker->step = ft_step_create(worker->params->max_num_seqs);
    if (worker->step == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for steps");
    /* A region that cannot be had is an error now, and not when a coordinator comes. */
    struct ft_region *probe = NULL;
    code = make_region(worker, NULL, &probe, err);
    if (code != FT_OK)
        return code;
    ft_region_close(&probe);
    return worker->role->open(worker, err);
}

enum ft_code ft_worker_open(struct ft_worker **out, const struct ft_worker_role *role,
                            const struct ft_worker_params *params, struct ft_err *err) {
    enum ft_code code = ft_worker_check_params(params, err);
    if (code != FT_OK)
        return code;
    struct ft_worker *worker = calloc(1, sizeof *worker);
    if (worker == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory");
    worker->role = role;
    worker->params = params;
    worker->epoch = ft_clock_random_u64();
    worker->step_rows_max = step_rows_max(role, params);
    code = open_model(worker, err);
    if (code == FT_OK)
        code = read_fingerprint(params->model, worker->fingerprint, err);
    if (code == FT_OK)
        code = open_rest(worker, err);
    if (code != FT_OK) {
        ft_worker_close(&worker);
        return code;
    }
    ft_warm_start(worker);
    *out = worker;
    return FT_OK;
}

void ft_worker_exchange(struct ft_worker *a, struct ft_worker *b) {
    struct ft_worker c = *a;
    *a = *b;
    *b = c;
}

/* rows_before of old were opened by nobody since old's own were. */
void ft_worker_inherit(struct ft_worker *fresh, struct ft_worker *old) {
    struct ft_region_memory *rows = &old->device_rows;
    struct ft_region_layout layout = layout_of(fresh);
    if (rows->at == NULL)
        return;
    rows->device = ft_model_device(fresh->model);
    if (rows->bytes >= ft_region_rows_bytes(&layout))
        fresh->device_rows = *rows;
    else
        fresh->rows_before = *rows;
    *rows = (struct ft_region_memory){0};
}

static void give_back(struct ft_region_memory *memory) {
    if (memory->at != NULL)
        memory->device->kind->give_back(memory->device, memory->at, memory->bytes);
    *memory = (struct ft_region_memory){0};
}

void ft_worker_close(struct ft_worker **worker) {
    if (*worker == NULL)
        return;
    struct ft_worker *w = *worker;
    if (w->model != NULL)
        ft_model_unpin(w->model);
    if (w->role_state != NULL)
        w->role->close(w);
    ft_region_close(&w->region);
    give_back(&w->device_rows);
    give_back(&w->rows_before);
    ft_step_destroy(&w->step);
    ft_kvseq_destroy(&w->seqs);
    ft_kvpool_destroy(&w->pool);
    ft_model_close(&w->model);
    free(w->params_own);
    free(w);
    *worker = NULL;
}

static void say_handover(const struct ft_worker *worker, enum ft_log_level level,
                         const char *text) {
    char line[FT_ERR_TEXT_MAX + 128];
    snprintf(line, sizeof line, "handover %.500s", text);
    worker->role->notify(level, line);
}

/* Rows of a GPU go straight into shared memory; a step has ended when they are there. */
static void pin_region(struct ft_worker *worker) {
    size_t bytes = (size_t)ft_region_row_stride(worker->region) * sizeof(float) *
                   (size_t)worker->step_rows_max * FT_REGION_GENERATIONS;
    bool is_pinned = ft_model_pin(worker->model, ft_region_row_mut(worker->region, 0, 0), bytes);
    if (!ft_model_is_apart(worker->model))
        return;
    if (is_pinned)
        say_handover(worker, FT_LOG_INFO, "synchronous rows \"written into shared memory\"");
    else
        say_handover(worker, FT_LOG_WARN,
                     "synchronous rows \"copied: shared memory could not be pinned, which costs a "
                     "copy for each row\"");
}

/* Memory for rows on the model's GPU, made once: whoever has it open must never find it gone. NULL:
 * there is none, and the log says why. */
static const struct ft_region_memory *device_memory(struct ft_worker *worker) {
    struct ft_region_memory *memory = &worker->device_rows;
    struct ft_region_layout layout = layout_of(worker);
    struct ft_err err = {0};
    if (!worker->role->device_rows || !ft_model_is_apart(worker->model))
        return NULL;
    if (memory->at != NULL)
        return memory;
    struct ft_device *device = ft_model_device(worker->model);
    size_t bytes = ft_region_rows_bytes(&layout);
    if (device->kind->share(device, bytes, &memory->at, &memory->handle, &err) != FT_OK) {
        char text[FT_ERR_TEXT_MAX + 64];
        memory->at = NULL;
        snprintf(text, sizeof text, "fallback shared-memory reason \"%.300s\"", err.text);
        say_handover(worker, FT_LOG_WARN, text);
        return NULL;
    }
    memory->device = device;
    memory->bytes = bytes;
    return memory;
}

static void lend_rows(struct ft_worker *worker) {
    if (ft_region_is_host(worker->region))
        pin_region(worker);
    else
        ft_model_lend(worker->model, worker->device_rows.at, worker->device_rows.bytes);
}

enum ft_code ft_worker_attach(struct ft_worker *worker, uint64_t coordinator_epoch,
                              bool device_rows, struct ft_err *err) {
    struct ft_region *region = NULL;
    enum ft_code code =
        make_region(worker, device_rows ? device_memory(worker) : NULL, &region, err);
    if (code != FT_OK)
        return code;
    ft_worker_detach(worker);
    worker->region = region;
    if (worker->role->rows_from_model)
        lend_rows(worker);
    if (!ft_region_is_host(region))
        say_handover(worker, FT_LOG_INFO, "synchronous rows \"on the GPU, read there\"");
    worker->coordinator_epoch = coordinator_epoch;
    ft_warm_attach(worker);
    return FT_OK;
}

int32_t ft_worker_detach(struct ft_worker *worker) {
    if (worker->role->rows_from_model)
        ft_model_unpin(worker->model);
    ft_region_close(&worker->region);
    worker->coordinator_epoch = 0;
    return ft_kvseq_release_all(worker->seqs);
}

void ft_worker_describe(const struct ft_worker *worker, struct ft_wire_describe *out) {
    const struct ft_model_config *config = ft_model_config(worker->model);
    const struct ft_weights *weights = ft_model_weights(worker->model);
    *out = (struct ft_wire_describe){
        .epoch = worker->epoch,
        .role = ft_str_c(worker->role->name),
        .model_dir = ft_str_c(worker->params->model),
        .architecture = ft_str_c(config->architecture),
        .vocab_size = (uint32_t)worker->vocab_size,
        .tokenizer_fingerprint = {(const char *)worker->fingerprint, sizeof worker->fingerprint},
        .max_model_len = (uint32_t)worker->len_max,
        .kv_block_tokens = (uint32_t)ft_kvpool_block_tokens(worker->pool),
        .kv_blocks_total = (uint64_t)ft_kvpool_total(worker->pool),
        .dtype = ft_str_c(ft_dtype_name(weights->dtype)),
        .backend = ft_str_c(ft_model_backend(worker->model)),
        .device_uuid = ft_str_c(worker->device_uuid),
        .n_parameters = weights->n_parameters,
        .weight_bytes = weights->bytes,
        .max_step_tokens = (uint32_t)worker->params->max_num_batched_tokens,
        .max_step_sequences = (uint32_t)worker->params->max_num_seqs,
        .max_step_rows = (uint32_t)worker->step_rows_max,
        .max_draft_len = (uint32_t)worker->role->max_draft_len,
        .version = ft_str_c(FT_VERSION),
        .weights_fingerprint = weights->fingerprint,
    };
}

/* Second number of /proc/self/statm, in pages; 0 when it cannot be read. */
static uint64_t resident_bytes(void) {
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL)
        return 0;
    unsigned long long pages = 0;
    if (fscanf(file, "%*u %llu", &pages) != 1)
        pages = 0;
    fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

void ft_worker_stats(const struct ft_worker *worker, struct ft_wire_worker_stats *out) {
    *out = (struct ft_wire_worker_stats){
        .epoch = worker->epoch,
        .steps = worker->stats.steps,
        .step_tokens = worker->stats.step_tokens,
        .step_nanos = worker->stats.step_nanos,
        .kv_blocks_total = (uint64_t)ft_kvpool_total(worker->pool),
        .kv_blocks_free = (uint64_t)ft_kvpool_free(worker->pool),
        .kv_blocks_cached = (uint64_t)ft_kvpool_cached(worker->pool),
        .sequences = (uint32_t)ft_kvseq_count(worker->seqs),
        .resident_bytes = resident_bytes(),
    };
}
