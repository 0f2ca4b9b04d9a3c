#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/config.h"
#include "support/suite.h"

static enum ft_code parse(const char *const *args, int n, struct co_config *config,
                          struct ft_err *err) {
    char *argv[16];
    argv[0] = (char *)(uintptr_t) "coordinator";
    for (int i = 0; i < n; i++)
        argv[i + 1] = (char *)(uintptr_t)args[i];
    return co_config_parse(config, n + 1, argv, err);
}

START_TEST(parse_defaults_with_a_target_is_enough) {
    static struct co_config config;
    struct ft_err err = {0};
    const char *args[] = {"--target-endpoint", "unix:/run/x"};
    ck_assert_int_eq(parse(args, 2, &config, &err), FT_OK);
    ck_assert_str_eq(config.listen, "127.0.0.1:50051");
    ck_assert_str_eq(config.num_speculative_tokens, "4");
    ck_assert_int_eq(config.draft_length.k_max, 4);
}
END_TEST

static const struct {
    const char *args[6];
    int n;
    const char *says;
} k_bad[] = {
    {{""}, 0, "target_endpoint is not set"},
    {{"--target_endpoint=unix:/x", "--listen=0.0.0.0:50051"}, 2, "allow_insecure"},
    {{"--target_endpoint=unix:/x", "--listen=0.0.0.0:50051"}, 2, "set tls_cert and tls_key"},
    {{"--target_endpoint=unix:/x", "--listen=127.0.0.1.example:1"}, 2, "beyond loopback"},
    {{"--target_endpoint=unix:/x", "--listen=localhost.example:1"}, 2, "beyond loopback"},
    {{"--target_endpoint=unix:/x", "--listen=[::]:1"}, 2, "beyond loopback"},
    {{"--target_endpoint=unix:/x", "--listen=nowhere"}, 2, "listen: endpoint 'nowhere'"},
    {{"--target_endpoint=nowhere"}, 1, "target_endpoint: endpoint 'nowhere'"},
    {{"--target_endpoint=unix:/x", "--draft_endpoint=nowhere"}, 2, "draft_endpoint: endpoint"},
    {{"--target_endpoint=unix:/x", "--draft_endpoint=unix:/x"}, 2, "draft_endpoint is 'unix:/x'"},
    {{"--target_endpoint=unix:/x", "--metrics_listen=unix:/m"}, 2, "metrics_listen is 'unix:/m'"},
    {{"--target_endpoint=unix:/x", "--tls_cert=c"}, 2, "tls_cert is set and tls_key is not"},
    {{"--target_endpoint=unix:/x", "--tls_key=k"}, 2, "tls_key is set and tls_cert is not"},
    {{"--target_endpoint=unix:/x", "--tls_client_ca=a"}, 2, "it needs tls_cert and tls_key"},
    {{"--target_endpoint=unix:/x", "--listen=unix:/y", "--tls_cert=c", "--tls_key=k"},
     4,
     "a Unix socket does not speak TLS"},
    {{"--target_endpoint=unix:/x", "--socket_mode=0777"}, 2, "0600|0660|0666"},
    {{"--target_endpoint=unix:/x", "--num_speculative_token=3"}, 2, "num_speculative_tokens"},
    {{"--target_endpoint=unix:/x", "--num_speculative_tokens=17"}, 2, "0 to 16"},
    {{"--target_endpoint=unix:/x", "--rejection_sample_method=warp"}, 2, "standard"},
    {{"--target_endpoint=unix:/x", "--max_num_seqs=100", "--max_num_batched_tokens=50"},
     3,
     "max_num_batched_tokens is 50"},
    {{"--target_endpoint=unix:/x", "--client_metadata_key=X-Client"}, 2, "lower-case"},
    {{"--target_endpoint=unix:/x", "stray"}, 2, "stray"},
    {{"--target_endpoint=unix:/x", "--lenience=0"}, 2, "lenience"},
    {{"--target_endpoint=unix:/x", "--rejection_sample_method=synthetic"},
     2,
     "set synthetic_acceptance_length or synthetic_acceptance_rates"},
    {{"--target_endpoint=unix:/x", "--synthetic_acceptance_length=5.5"},
     2,
     "synthetic_acceptance_length is 5.5: must be 0 or 1 to 5"},
    {{"--target_endpoint=unix:/x", "--synthetic_acceptance_length=0.5"}, 2, "is 0.5"},
    {{"--target_endpoint=unix:/x", "--synthetic_acceptance_rates=0.5,x"}, 2, "entry 1"},
    {{"--target_endpoint=unix:/x", "--synthetic_acceptance_rates=1.5"}, 2, "entry 0"},
    {{"--target_endpoint=unix:/x",
      "--synthetic_acceptance_rates=1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"},
     2,
     "at most 16 entries"},
    {{"--target_endpoint=unix:/x", "--synthetic_acceptance_rates=1",
      "--synthetic_acceptance_length=2"},
     3,
     "both set"},
    {{"--target_endpoint=unix:/x", "--drafter_chain=ngram,nothing"}, 2, "names 'nothing'"},
    {{"--target_endpoint=unix:/x", "--drafter_chain=chain"}, 2, "names 'chain'"},
    {{"--target_endpoint=unix:/x", "--drafter_chain=ngram,ngram,ngram,ngram,ngram"},
     2,
     "more than 4 drafters"},
    {{"--target_endpoint=unix:/x", "--drafter=bigram"}, 2, "set drafter_text"},
    {{"--target_endpoint"}, 1, "needs a value"},
};

START_TEST(parse_bad_arguments_are_named) {
    static struct co_config config;
    struct ft_err err = {0};
    ck_assert_int_eq(parse(k_bad[_i].args, k_bad[_i].n, &config, &err), FT_E_PROC_CONFIG);
    ck_assert_msg(strstr(err.text, k_bad[_i].says) != NULL, "'%s' lacks '%s'", err.text,
                  k_bad[_i].says);
}
END_TEST

START_TEST(parse_insecure_address_needs_the_override) {
    static struct co_config config;
    struct ft_err err = {0};
    const char *args[] = {"--target_endpoint=unix:/x", "--listen=0.0.0.0:1", "--allow-insecure"};
    ck_assert_int_eq(parse(args, 3, &config, &err), FT_OK);
    const char *tls[] = {"--target_endpoint=unix:/x", "--listen=0.0.0.0:1", "--tls_cert=c",
                         "--tls_key=k"};
    ck_assert_int_eq(parse(tls, 4, &config, &err), FT_OK);
    static const char *const local[] = {"127.255.0.1:1", "[::1]:1", "localhost:1", "unix:/y"};
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++) {
        char listen[64];
        snprintf(listen, sizeof listen, "--listen=%s", local[i]);
        const char *plain[] = {"--target_endpoint=unix:/x", listen};
        ck_assert_msg(parse(plain, 2, &config, &err) == FT_OK, "%s", err.text);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("co_config");
    TCase *tc = tcase_create("co_config");
    tcase_add_test(tc, parse_defaults_with_a_target_is_enough);
    tcase_add_loop_test(tc, parse_bad_arguments_are_named, 0, sizeof k_bad / sizeof k_bad[0]);
    tcase_add_test(tc, parse_insecure_address_needs_the_override);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
