#include "unit/worker_rig.h"

#include <check.h>
#include <string.h>

#include "ipc/history_model.h"
#include "support/fixtures.h"

void rig_init(struct rig *rig, int32_t n_blocks) {
    memset(rig, 0, sizeof *rig);
    struct ft_worker_params *p = &rig->params;
    strcpy(p->model, ft_fixture_model("cyc")); /* only its tokenizer is read */
    strcpy(p->device, "cpu");
    strcpy(p->kv_layout, "paged");
    p->kv_cache_bytes = (int64_t)(n_blocks > 0 ? n_blocks : 1000) * HISTORY_BLOCK_BYTES;
    p->max_num_seqs = 8;
    p->max_num_batched_tokens = 200;
    p->enable_prefix_caching = true;
}

void rig_open(struct rig *rig, const struct ft_worker_role *role) {
    struct ft_err err = {0};
    ck_assert_msg(ft_worker_open(&rig->worker, role, &rig->params, &err) == FT_OK, "%s", err.text);
    ck_assert_msg(ft_worker_attach(rig->worker, 1, false, &err) == FT_OK, "%s", err.text);
    ft_region_unlink(rig->worker->region); /* a test that fails leaves no name behind */
}

void rig_close(struct rig *rig) {
    ft_worker_detach(rig->worker);
    struct ft_wire_worker_stats stats;
    ft_worker_stats(rig->worker, &stats);
    ck_assert_uint_eq(stats.kv_blocks_free + stats.kv_blocks_cached, stats.kv_blocks_total);
    ck_assert_uint_eq(stats.sequences, 0);
    ft_worker_close(&rig->worker);
}

const struct ft_wire_seq_result *rig_step(struct rig *rig, const struct ft_wire_seq_step *seqs,
                                          size_t n) {
    struct ft_err err = {0};
    rig->step_id++;
    struct ft_wire_step step = {
        .step_id = rig->step_id,
        .epoch = rig->worker->epoch,
        .generation = (uint32_t)(rig->step_id % 2),
        .seqs = seqs,
        .n_seqs = n,
        .coordinator_epoch = rig->worker->coordinator_epoch,
    };
    enum ft_code code = ft_step_execute(rig->worker, &step, &rig->reply, &err);
    ck_assert_msg(code == FT_OK, "%s", err.text);
    ck_assert_uint_eq(rig->reply.n_results, n);
    ck_assert_uint_eq(rig->reply.step_id, rig->step_id);
    for (size_t i = 0; i < n; i++)
        ck_assert_uint_eq(rig->reply.results[i].seq_id, seqs[i].seq_id);
    return rig->reply.results;
}

const float *rig_row(const struct rig *rig, const struct ft_wire_seq_result *result, int32_t i) {
    ck_assert_int_lt(i, (int32_t)result->n_rows);
    const float *row = ft_region_row(rig->worker->region, (uint32_t)(rig->step_id % 2),
                                     (int64_t)result->first_row + i);
    ck_assert_ptr_nonnull(row);
    return row;
}
