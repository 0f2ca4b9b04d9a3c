/* worker: one model with its KV pool, and what a coordinator is attached to.
 * Owns:    model, pool, sequences, region, scratch of a step; from open to close.
 * Runs in: draft_worker, target_worker; loop thread only.
 * Never:   knows requests, text or clients; logs token ids. */
#ifndef FT_WORKER_WORKER_H
#define FT_WORKER_WORKER_H

#include "common/base/arena.h"
#include "common/base/log.h"
#include "common/ipc/region.h"
#include "common/kv/kvseq.h"
#include "common/model/model.h"
#include "common/text/tokenizer.h"
#include "common/wire/worker.h"
#include "common/worker/params.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_worker;
struct ft_step;

/* What one sequence of a step asks for, beside its tokens. */
struct ft_step_need {
    int32_t n_logits;  /* logits rows of its last positions, from the first forward pass */
    int32_t n_rows;    /* rows of the region */
    int32_t n_reserve; /* positions of KV that the step appends after the tokens */
    int32_t n_drafted; /* tokens that must still fit the context behind them */
};

/* The variation point between the two workers; see target_worker/ and draft_worker/. */
struct ft_worker_role {
    const char *name;    /* "target", "draft" */
    const char *service; /* path prefix, FT_WIRE_*_SERVICE */
    const char *step_method;
    int32_t rows_per_seq; /* region rows that one sequence can fill */
    int32_t max_draft_len;
    bool rows_from_model; /* logits go from the model straight into the region */
    bool reloads;         /* another model may take over while it runs */
    bool device_rows;     /* rows may lie on a GPU: nothing in the role reads them on the host */
    /* Take and give back worker->role_state. */
    enum ft_code (*open)(struct ft_worker *worker, struct ft_err *err);
    void (*close)(struct ft_worker *worker);
    /* Check the fields of a sequence step that only this role reads. fail FT_E_REQ_INVALID */
    enum ft_code (*plan)(const struct ft_worker *worker, const struct ft_wire_seq_step *in,
                         struct ft_step_need *need, struct ft_err *err);
    /* Compute the planned sequences and write rows and results. A failure is the process's. */
    enum ft_code (*run)(struct ft_worker *worker, struct ft_step *step, struct ft_err *err);
    /* One line of the worker's life cycle, for the log. */
    void (*notify)(enum ft_log_level level, const char *line);
};

struct ft_worker_stats {
    uint64_t steps;
    uint64_t step_tokens; /* positions computed */
    uint64_t step_nanos;
};

struct ft_worker {
    const struct ft_worker_role *role;
    const struct ft_worker_params *params;
    uint64_t epoch;
    struct ft_model *model;
    int32_t vocab_size;
    int32_t len_max; /* positions of one sequence */
    int32_t step_rows_max;
    unsigned char fingerprint[FT_TOKENIZER_FINGERPRINT_BYTES];
    struct ft_kvpool *pool;
    struct ft_kvseq_table *seqs;
    struct ft_region *region;            /* NULL while no coordinator is attached */
    struct ft_region_memory device_rows; /* made when first wanted, kept to the end */
    struct ft_region_memory rows_before; /* of the model before, too small for this one */
    int32_t load_tenths;                 /* of the weights, when last said */
    int32_t n_warm_shapes;               /* of model/shapes.h, whose steps were done at start */
    uint64_t coordinator_epoch;
    struct ft_worker_stats stats;
    struct ft_step *step; /* scratch */
    void *role_state;
    struct ft_worker_params *params_own;  /* freed with it; NULL: params are somebody else's */
    char device_uuid[FT_DEVICE_UUID_MAX]; /* "" on a CPU */
};

/* What the table of parameters cannot say, before anything is loaded.
 * fail FT_E_PROC_CONFIG names the parameter */
enum ft_code ft_worker_check_params(const struct ft_worker_params *params, struct ft_err *err);

/* What a coordinator would have to agree with. */
struct ft_worker_facts {
    unsigned char fingerprint[FT_TOKENIZER_FINGERPRINT_BYTES];
    int32_t len_max;
};

/* What opening finds wrong in the files and sizes that params name, found without loading.
 * params have passed ft_worker_check_params. fail as open */
enum ft_code ft_worker_check_files(const struct ft_worker_role *role,
                                   const struct ft_worker_params *params,
                                   struct ft_worker_facts *facts, struct ft_err *err);

/* Load the model and take all memory. params and role are borrowed.
 * fail FT_E_PROC_CONFIG names the parameter; FT_E_PROC_MODEL names the file; FT_E_PROC_MEMORY;
 *      FT_E_PROC_OS: no shared memory for the region */
enum ft_code ft_worker_open(struct ft_worker **out, const struct ft_worker_role *role,
                            const struct ft_worker_params *params, struct ft_err *err);
void ft_worker_close(struct ft_worker **worker);
/* fresh is to serve in place of old, on the same device: what a coordinator may have open of old's
 * rows is fresh's then, because it would be read even when it has been freed. Before old is closed.
 */
void ft_worker_inherit(struct ft_worker *fresh, struct ft_worker *old);
/* Both live on under the other's address. Nothing may hold on to what one of them owns. */
void ft_worker_exchange(struct ft_worker *a, struct ft_worker *b);

/* A fresh region for a coordinator; the one before is closed and every sequence dropped.
 * device_rows: the coordinator reads rows on the GPU where the model is; the log says where they
 * are then, and what that costs. */
enum ft_code ft_worker_attach(struct ft_worker *worker, uint64_t coordinator_epoch,
                              bool device_rows, struct ft_err *err);
/* The coordinator is gone: drop its sequences and the region. Returns how many sequences. */
int32_t ft_worker_detach(struct ft_worker *worker);

void ft_worker_describe(const struct ft_worker *worker, struct ft_wire_describe *out);
void ft_worker_stats(const struct ft_worker *worker, struct ft_wire_worker_stats *out);

#ifdef __cplusplus
}
#endif
#endif
