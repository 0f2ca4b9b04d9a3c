#include <check.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/model/weights.h"
#include "support/awake.h"
#include "support/fixtures.h"
#include "support/suite.h"

static void open_model(const char *spec, struct ft_model_config *config, struct ft_weights *w) {
    const char *dir = ft_fixture_model(spec);
    struct ft_err err = {0};
    ck_assert_msg(ft_model_config_load(dir, config, &err) == FT_OK, "%s", err.text);
    ck_assert_msg(ft_weights_open(w, dir, config, &err) == FT_OK, "%s", err.text);
}

START_TEST(model_with_changes_has_them) {
    struct ft_model_config config;
    struct ft_weights w;
    open_model("cyc+ctx=64+dtype=bf16+shards=3+eos=257,258+vocab=320", &config, &w);
    ck_assert_int_eq(config.max_position_embeddings, 64);
    ck_assert_int_eq(config.vocab_size, 320);
    ck_assert_int_eq(config.n_eos, 2);
    ck_assert_int_eq(w.dtype, FT_DTYPE_BF16);
    ft_weights_close(&w);
    open_model("r7+rope=llama3:8:64+heads=4", &config, &w);
    ck_assert_int_eq(config.rope_kind, FT_ROPE_LLAMA3);
    ck_assert_int_eq(config.rope_original_max_position, 64);
    ck_assert_int_eq(w.layers[0].q.rows, 256);
    ft_weights_close(&w);
}
END_TEST

static bool is_zero(struct ft_tensor t) {
    const float *x = t.data;
    for (int32_t i = 0; i < t.rows * t.cols; i++)
        if (x[i] < 0 || x[i] > 0)
            return false;
    return true;
}

/* Attention and MLP add nothing, the norm turns onehot(i) into 32 onehot(i): what the forward pass
 * gives behind token i is head[j][i] * 32. */
START_TEST(table_model_holds_its_logits) {
    struct ft_model_config config;
    struct ft_weights w;
    open_model("iid", &config, &w);
    int32_t vocab = config.vocab_size, hidden = config.hidden_size, n_wrong = 0;
    const float *embed = w.embed.data, *head = w.head.data;
    for (int32_t i = 0; i < vocab; i++)
        for (int32_t h = 0; h < hidden; h++)
            n_wrong += fabsf(embed[i * hidden + h] - (h == i ? 1.0f : 0.0f)) > 0;
    for (int32_t i = 0; i < vocab; i++)
        for (int32_t j = 0; j < vocab; j++) {
            float expected = j == 'b' ? 2 : j == 'c' ? 1 : j == 'd' ? 0 : -40;
            n_wrong += fabsf(head[j * hidden + i] * 32 - expected) > 0;
        }
    ck_assert_int_eq(n_wrong, 0);
    ck_assert(is_zero(w.layers[0].o));
    ck_assert(is_zero(w.layers[0].down));
    ck_assert(!is_zero(w.layers[0].q));
    ft_weights_close(&w);
}
END_TEST

START_TEST(model_made_by_many_at_once_is_whole) {
    pid_t pids[4];
    for (int i = 0; i < 4; i++) {
        pids[i] = fork();
        ck_assert_int_ge(pids[i], 0);
        if (pids[i] == 0) {
            ft_fixture_model("r8");
            _exit(0);
        }
    }
    for (int i = 0; i < 4; i++) {
        int status = -1;
        ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
        ck_assert_int_eq(status, 0);
    }
    struct ft_model_config config;
    struct ft_weights w;
    open_model("r8", &config, &w);
    ft_weights_close(&w);
}
END_TEST

START_TEST(temp_dir_is_written_copied_and_removed) {
    const char *a = ft_fixture_temp_dir(), *b = ft_fixture_temp_dir();
    ck_assert_str_ne(a, b);
    ft_fixture_write_text(a, "x.json", "{\"k\": [1, 2]}");
    ft_fixture_copy(a, b);
    json_t *root = ft_fixture_json(b, "x.json");
    ck_assert_uint_eq(json_array_size(json_object_get(root, "k")), 2);
    json_decref(root);
    ft_fixture_remove_dir(a);
    ft_fixture_remove_dir(b);
    ck_assert_int_ne(access(a, F_OK), 0);
}
END_TEST

/* What passes while the process is stopped is left out; what it sleeps is not. */
START_TEST(awake_clock_leaves_out_a_stop_and_counts_a_sleep) {
    pid_t child = fork();
    if (child == 0) {
        int64_t begin_ns = ft_awake_ns(), wall_ns = ft_clock_now_ns();
        raise(SIGSTOP);
        int64_t stopped_ns = ft_awake_ns() - begin_ns;
        bool is_left_out = ft_clock_now_ns() - wall_ns >= 900000000 && stopped_ns < 600000000;
        begin_ns = ft_awake_ns();
        wall_ns = ft_clock_now_ns();
        while (ft_awake_ns() - begin_ns < 100000000 && ft_clock_now_ns() - wall_ns < 20000000000)
            usleep(1000);
        bool is_counted = ft_awake_ns() - begin_ns >= 100000000;
        _exit(is_left_out && is_counted ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
    ck_assert(WIFSTOPPED(status));
    usleep(1000000);
    kill(child, SIGCONT);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fixtures");
    TCase *tcase = tcase_create("fixtures");
    tcase_add_test(tcase, model_with_changes_has_them);
    tcase_add_test(tcase, table_model_holds_its_logits);
    tcase_add_test(tcase, model_made_by_many_at_once_is_whole);
    tcase_add_test(tcase, temp_dir_is_written_copied_and_removed);
    tcase_add_test(tcase, awake_clock_leaves_out_a_stop_and_counts_a_sleep);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
