#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/model/weights.h"

START_TEST(open_every_checkpoint_binds) {
    static const char *const names[] = {"tests/data/golden/llama-bias",
                                        "tests/data/golden/llama-f16-sharded",
                                        "tests/data/golden/llama-gqa-tied-bf16",
                                        "tests/data/golden/llama-mqa-rope-llama3",
                                        "tests/data/golden/llama-rope-linear",
                                        "tests/data/golden/llama-untied-f32",
                                        "tests/data/golden/mistral-untied",
                                        "tests/data/golden/qwen2-tied",
                                        "tests/data/golden/qwen3-qknorm",
                                        "models/demo-draft",
                                        "models/demo-target"};
    char dir[512];
    snprintf(dir, sizeof dir, "%s/%s", FT_TEST_SOURCE_DIR, names[_i]);
    struct ft_model_config config;
    struct ft_weights w;
    struct ft_err err = {0};
    ck_assert_msg(ft_model_config_load(dir, &config, &err) == FT_OK, "%s", err.text);
    ck_assert_msg(ft_weights_open(&w, dir, &config, &err) == FT_OK, "%s", err.text);
    printf("%s %lu %lu\n", names[_i], w.n_parameters, w.bytes);
    ft_weights_close(&w);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("weights");
    TCase *t = tcase_create("all");
    suite_add_tcase(suite, t);
    tcase_add_loop_test(t, open_every_checkpoint_binds, 0, 11);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
