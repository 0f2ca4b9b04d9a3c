/* model: one transformer on one device: ragged batches of tokens in, rows of logits out.
 * Owns:    weights (mapped or uploaded), KV memory, activations; all taken at open.
 * Runs in: draft_worker, target_worker; loop thread only.
 * Never:   knows sequences, requests or blocks' owners: it follows the block tables it is given. */
#ifndef FT_MODEL_MODEL_H
#define FT_MODEL_MODEL_H

#include "common/gpu/choice.h"
#include "common/model/config.h"
#include "common/model/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_model;
struct ft_device;

#define FT_KV_BLOCK_TOKENS 16

struct ft_model_opts {
    const char *dir;
    const char *device;      /* "cpu", "cpu:avx2", ...; see common/gpu/device.h */
    int32_t n_threads;       /* CPU device; 0: one per core */
    int32_t max_model_len;   /* 0: the model's own; larger than its own is refused */
    int64_t kv_bytes;        /* budget; at least one block and at most what max_blocks needs */
    int32_t max_step_tokens; /* positions computed in one forward, all sequences together */
    int32_t max_step_rows;   /* logits rows of one forward */
    /* Told now and then how many bytes of weights are on the device; NULL: nobody asks. */
    void (*progress)(void *user, uint64_t done, uint64_t total);
    void *progress_user;
};

struct ft_model_sizes {
    int32_t max_len, kv_blocks;
};

/* What open finds wrong before it takes memory: in config.json, in the headers of the weights, in
 * opts. fail as open */
enum ft_code ft_model_check(const struct ft_model_opts *opts, struct ft_model_sizes *sizes,
                            struct ft_err *err);
/* fail FT_E_PROC_MODEL, FT_E_PROC_CONFIG (names the option), FT_E_PROC_MEMORY */
enum ft_code ft_model_open(struct ft_model **out, const struct ft_model_opts *opts,
                           struct ft_err *err);
/* The same with weights that are there already, whatever their source; opts->dir is not read.
 * weights must outlive the model and are the caller's to close; config is copied. */
enum ft_code ft_model_open_weights(struct ft_model **out, const struct ft_model_config *config,
                                   const struct ft_weights *weights,
                                   const struct ft_model_opts *opts, struct ft_err *err);
void ft_model_close(struct ft_model **model);

const struct ft_model_config *ft_model_config(const struct ft_model *model);
const struct ft_weights *ft_model_weights(const struct ft_model *model);
int32_t ft_model_max_len(const struct ft_model *model);
int32_t ft_model_kv_blocks(const struct ft_model *model);   /* ids 0 .. n - 1 */
const char *ft_model_backend(const struct ft_model *model); /* "cpu avx512, 2 threads" */

struct ft_batch_seq {
    const int32_t *blocks; /* block table: position i lies in blocks[i / FT_KV_BLOCK_TOKENS] */
    int32_t start;         /* positions whose KV is valid; the first token goes to this position */
    const int32_t *tokens; /* [n_tokens], each 0 .. vocab_size - 1 */
    int32_t n_tokens;      /* at least 1 */
    int32_t n_logits;      /* 0 .. n_tokens: rows wanted, of the last positions */
};

/* One forward pass: writes KV at start .. start + n_tokens - 1 of every sequence and the wanted
 * rows, in order of sequences and positions.
 * out   rows   row r at rows + r * row_stride, [vocab_size] f32, unscaled logits
 * in    row_stride  floats, at least vocab_size, a multiple of 16
 * The bits of a row depend only on weights and that sequence's tokens (DESIGN 7).
 * fail FT_E_PROC_INTERNAL for limits of opts that the caller broke; nothing is written. */
enum ft_code ft_model_forward(struct ft_model *model, const struct ft_batch_seq *seqs,
                              int32_t n_seqs, float *rows, int64_t row_stride, struct ft_err *err);

/* ---- drafting on a device whose memory is not the host's ---- */

struct ft_drafts_opts {
    int32_t n_seqs_max, n_edits_max, n_ids_max; /* of one step */
};
/* One sequence behind a forward pass over its tokens. */
struct ft_draft_seq {
    const int32_t *blocks; /* of all positions, those of the drafts too */
    int32_t start;         /* positions that the forward pass leaves: the first draft's place */
    int32_t n_steps;       /* tokens to draft, 1 .. FT_CHOICE_DRAFTED_MAX */
};
struct ft_draft_step {
    const struct ft_draft_seq *seqs; /* [n_seqs], those that draft most first */
    int32_t n_seqs;
    /* What each token is: rows of the first token of each sequence, then of the second of those
     * that have one, .. ; where logits come from and tokens go is filled in here. */
    const struct ft_choice_row *rows;
    int32_t n_rows;
    const struct ft_choice_edit *edits;
    int32_t n_edits;
    const int32_t *ids;
    int32_t n_ids;
    struct ft_choice_result *results; /* out [n_rows] */
};
/* Take memory for it, once. fail FT_E_PROC_CONFIG: the model is in the host's memory */
enum ft_code ft_model_drafts_open(struct ft_model *model, const struct ft_drafts_opts *opts,
                                  struct ft_err *err);
/* Whether that was done. */
bool ft_model_drafts_ahead(const struct ft_model *model);
/* A forward pass over batch, whose first n_seqs sequences want one row each and are those of step,
 * and then the drafts, which are fed but for the last of each sequence. *fits false: the lists are
 * too long, and nothing was done.
 * fail FT_E_PROC_INTERNAL */
enum ft_code ft_model_draft(struct ft_model *model, const struct ft_batch_seq *batch,
                            int32_t n_batch, const struct ft_draft_step *step, bool *fits,
                            struct ft_err *err);

/* ---- programs of steps, noted before the steps come ---- */

#define FT_WARMUP_PLACES_MAX 2

struct ft_warmup_opts {
    int32_t n_seqs_max, n_rows_max; /* of one step; rows: at most max_step_rows */
    /* Steps that may need operations of another kind are done once, before anything of them is
     * noted. It writes KV into the first blocks: no sequence may be held by then. Without it only
     * shapes are noted of which this has been done: n_shapes_max. */
    bool computes;
    int32_t n_shapes_max; /* no more of the list of shapes.h; 0: as many as there is room for */
    /* Where steps will ask for rows, a program for each place; of a model that drafts here, its own
     * memory is meant, and nothing else. places NULL: nothing is noted. */
    float *const *places;
    int32_t n_places;   /* 1 .. FT_WARMUP_PLACES_MAX, whether they are known yet or not */
    int64_t row_stride; /* floats */
    int64_t budget_ns;  /* nothing more is begun after so long */
};
struct ft_warmup_done {
    int32_t n_shapes;                    /* so much of the list is done */
    int32_t n_computed;                  /* steps */
    int32_t n_plain, n_verify, n_drafts; /* programs that are new */
    int32_t n_left;                      /* shapes that the budget left out */
};
/* How many programs the model's device notes; 0: none, and there is nothing to warm up. */
int32_t ft_model_programs_max(const struct ft_model *model);
/* Note what shapes.h says, so that steps find their programs. Nothing that a step computes depends
 * on it. done is right on failure, too.
 * fail FT_E_PROC_INTERNAL: a step could not be noted or computed, says the device; what was noted
 *      before stays; FT_E_PROC_MEMORY */
enum ft_code ft_model_warm_up(struct ft_model *model, const struct ft_warmup_opts *opts,
                              struct ft_warmup_done *done, struct ft_err *err);

/* Say that rows will be asked for in this memory, which spares them a copy where the device can
 * write there; one at a time, until unpin or close. false: rows are copied, which is slower. */
bool ft_model_pin(struct ft_model *model, void *memory, size_t bytes);
void ft_model_unpin(struct ft_model *model);
/* Whether rows come out of a memory that is not the host's. */
bool ft_model_is_apart(const struct ft_model *model);
/* Where the model is; the model's to close. */
struct ft_device *ft_model_device(const struct ft_model *model);
/* As pin, for memory of that device. */
void ft_model_lend(struct ft_model *model, void *memory, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
