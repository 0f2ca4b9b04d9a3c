/* params: command-line parameters of a worker.
 * Owns:    nothing; plain data.
 * Runs in: draft_worker, target_worker; loop thread only.
 * Never:   changes after start, but for the rows that are reloadable. */
#ifndef FT_WORKER_PARAMS_H
#define FT_WORKER_PARAMS_H

#include "common/base/param.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_worker_params {
    char model[FT_PARAM_STR_MAX];
    char listen[FT_PARAM_STR_MAX];
    char device[FT_PARAM_STR_MAX];
    char kv_layout[FT_PARAM_STR_MAX];
    char log_level[FT_PARAM_STR_MAX];
    char socket_mode[FT_PARAM_STR_MAX];
    char socket_group[FT_PARAM_STR_MAX];
    char socket_users[FT_PARAM_STR_MAX];
    int64_t kv_cache_bytes;
    int32_t num_threads;
    int32_t max_model_len;
    int32_t max_num_seqs;
    int32_t max_num_batched_tokens;
    int32_t max_step_rows;
    int32_t spin_us;
    int32_t warmup_ms;
    int32_t ready_fd;
    bool enable_prefix_caching;
    bool die_with_parent;
};

/* One row of a .def file; the roles build their table of it:
 *     #define X FT_WORKER_PARAM_ROW
 *     #include "common/worker/params.def" */
#define FT_WORKER_PARAM_ROW(name, kind, unit, min, max, def, choices, reach, help)                 \
    FT_PARAM_ROW(struct ft_worker_params, name, kind, unit, min, max, def, choices, reach, help)

#ifdef __cplusplus
}
#endif
#endif
