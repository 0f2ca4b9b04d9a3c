/* Mutated config.json and generation_config.json. The reader may refuse; what it accepts must keep
 * the promises of config.h. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/model/config.h"
#include "fuzz/config_mutate.h"
#include "support/fixtures.h"
#include "support/suite.h"

static const char *const k_dirs[] = {
    "tests/data/golden/llama-mqa-rope-llama3", "tests/data/golden/qwen3-qknorm",
    "tests/data/golden/mistral-untied", "tests/data/golden/qwen2-tied", "models/demo-target"};

static void check_promises(const struct ft_model_config *c) {
    ck_assert(c->vocab_size > 0 && c->hidden_size > 0 && c->intermediate_size > 0);
    ck_assert(c->n_layers > 0 && c->n_heads > 0 && c->n_kv_heads > 0);
    ck_assert(c->n_heads % c->n_kv_heads == 0);
    ck_assert(c->head_dim >= 2 && c->head_dim % 2 == 0 && c->head_dim <= 1024);
    ck_assert(c->max_position_embeddings > 0);
    ck_assert(c->rms_norm_eps > 0 && c->rope_theta >= 1 && c->rope_factor >= 1);
    ck_assert(c->sliding_window >= 0 && c->sliding_window_first_layer >= 0);
    ck_assert(c->sliding_window == 0 || c->sliding_window_first_layer < c->n_layers);
    ck_assert(c->n_eos >= 0 && c->n_eos <= FT_EOS_MAX);
    for (int32_t i = 0; i < c->n_eos; i++)
        ck_assert(c->eos_token_ids[i] >= 0 && c->eos_token_ids[i] < c->vocab_size &&
                  (i == 0 || c->eos_token_ids[i - 1] < c->eos_token_ids[i]));
    ck_assert(c->bos_token_id >= -1 && c->bos_token_id < c->vocab_size);
    float frequencies[512];
    ft_model_rope_frequencies(c, frequencies);
    for (int32_t i = 0; i < c->head_dim / 2; i++)
        ck_assert(frequencies[i] >= 0 && frequencies[i] <= 1);
}

/* One text in a block of exactly its length, so that a sanitizer sees a read past it. */
static char *exact(const char *text, size_t len) {
    char *out = malloc(len == 0 ? 1 : len);
    ck_assert_ptr_nonnull(out);
    memcpy(out, text, len);
    return out;
}

START_TEST(parse_mutated_config_refuses_or_keeps_promises) {
    const char *dir = ft_fixture_source(k_dirs[_i]);
    struct ft_buf config = ft_fixture_read(dir, "config.json");
    struct ft_buf generation = ft_fixture_read(dir, "generation_config.json");
    struct mutate_rng rng = {(uint64_t)_i};
    uint64_t n_rounds = 0, n_accepted = 0;
    char text[8192], generation_text[4096];
    ck_assert(config.len < sizeof text && generation.len < sizeof generation_text);
    int64_t until = mutate_deadline_ns();
    do {
        memcpy(text, config.ptr, config.len);
        memcpy(generation_text, generation.ptr, generation.len);
        size_t len = mutate_json(&rng, text, config.len, sizeof text);
        size_t generation_len = generation.len;
        if (mutate_below(&rng, 4) == 0)
            generation_len =
                mutate_json(&rng, generation_text, generation_len, sizeof generation_text);
        char *a = exact(text, len), *b = exact(generation_text, generation_len);
        struct ft_model_config c;
        struct ft_err err = {0};
        enum ft_code code = ft_model_config_parse((struct ft_str){a, len},
                                                  (struct ft_str){b, generation_len}, &c, &err);
        ck_assert(code == FT_OK || (code == FT_E_PROC_MODEL && err.text[0] != 0));
        if (code == FT_OK)
            check_promises(&c);
        n_accepted += code == FT_OK;
        n_rounds++;
        free(a);
        free(b);
    } while (ft_clock_now_ns() < until || n_accepted == 0);
    printf("%s: %llu rounds, %llu accepted\n", k_dirs[_i], (unsigned long long)n_rounds,
           (unsigned long long)n_accepted);
    ck_assert_msg(n_accepted < n_rounds, "the mutations test nothing");
    ft_buf_fini(&config);
    ft_buf_fini(&generation);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fuzz_config");
    TCase *tcase = tcase_create("fuzz_config");
    tcase_add_loop_test(tcase, parse_mutated_config_refuses_or_keeps_promises, 0,
                        sizeof k_dirs / sizeof k_dirs[0]);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
