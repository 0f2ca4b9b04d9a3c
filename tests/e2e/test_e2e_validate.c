/* Bad requests: each a clear error that names the field, the value and the limit, while the streams
 * beside it go on undisturbed. */
#include <arpa/inet.h>
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/cluster.h"
#include "support/fixtures.h"
#include "support/suite.h"

enum { NEIGHBOURS = 4, NEIGHBOUR_TOKENS = 500, INVALID = 3, UNIMPLEMENTED = 12, EXHAUSTED = 8 };

static struct cluster g_cluster;
static struct gen g_gen;
static struct gen g_neighbours[NEIGHBOURS];

static void start_neighbours(void) {
    for (int i = 0; i < NEIGHBOURS; i++) {
        struct ft_wire_generate request = gen_text("a", NEIGHBOUR_TOKENS, i);
        gen_start(&g_cluster, &request, &g_neighbours[i]);
    }
}

static void require_neighbours(void) {
    for (int i = 0; i < NEIGHBOURS; i++) {
        struct gen *gen = &g_neighbours[i];
        gen_wait(&g_cluster, &gen, 1);
        ck_assert_msg(gen->status.code == 0, "%s", gen->status.text);
        ck_assert_uint_eq(gen->n_ids, NEIGHBOUR_TOKENS);
        int wrong = 0;
        for (size_t j = 0; j < gen->n_ids; j++)
            wrong += gen->ids[j] != "bcdea"[j % 5];
        ck_assert_int_eq(wrong, 0);
        gen_fini(gen);
    }
}

static void require_refused(const struct ft_wire_generate *request, int code, const char *says) {
    gen_run(&g_cluster, request, &g_gen);
    ck_assert_msg(g_gen.status.code == code, "status %s '%s', expected '%s'",
                  ft_rpc_status_name(g_gen.status.code), g_gen.status.text, says);
    ck_assert_msg(strstr(g_gen.status.text, says) != NULL, "'%s' does not say '%s'",
                  g_gen.status.text, says);
    ck_assert_uint_eq(g_gen.n_ids, 0);
    gen_fini(&g_gen);
}

START_TEST(bad_parameters_are_refused_by_name) {
    cluster_start_pair(&g_cluster, "cyc", "cyc-draft", "--allow_lossy=true");
    start_neighbours();
#define BAD(change, says)                                                                          \
    do {                                                                                           \
        struct ft_wire_generate r = gen_text("a", 5, 4);                                           \
        change;                                                                                    \
        require_refused(&r, INVALID, says);                                                        \
    } while (0)
    BAD(r.params.temperature = -1, "temperature is -1: must be 0 to 100");
    BAD(r.params.temperature = NAN, "temperature is ");
    BAD(r.params.temperature = INFINITY, "temperature is inf");
    BAD((r.params.has_top_p = true, r.params.top_p = 1.5f), "top_p is 1.5");
    BAD((r.params.has_top_p = true, r.params.top_p = NAN), "top_p");
    BAD(r.params.min_p = -0.1f, "min_p is -0.1");
    BAD(r.params.min_p = NAN, "min_p");
    BAD(r.params.top_k = -2, "top_k is -2");
    BAD(r.params.frequency_penalty = 3, "frequency_penalty is 3");
    BAD(r.params.presence_penalty = -3, "presence_penalty is -3");
    BAD((r.params.has_repetition_penalty = true, r.params.repetition_penalty = 0),
        "repetition_penalty is 0");
    BAD(r.params.min_tokens = 6, "min_tokens is 6");
    BAD((r.params.has_n = true, r.params.n = 0), "n is 0: must be 1 to 64");
    BAD((r.params.has_n = true, r.params.n = 65), "n is 65: must be 1 to 64");
    BAD((r.params.has_logprobs = true, r.params.logprobs = 21), "logprobs is 21: must be 0 to 20");
    BAD((r.params.has_logprobs = true, r.params.logprobs = -1), "logprobs is -1");
    BAD((r.params.has_prompt_logprobs = true, r.params.prompt_logprobs = 21),
        "prompt_logprobs is 21: must be 0 to 20");
    BAD((r.params.has_prompt_logprobs = true, r.params.prompt_logprobs = INT32_MIN),
        "prompt_logprobs is -2147483648");
    BAD(r.params.has_truncate_prompt_tokens = true,
        "truncate_prompt_tokens is 0: must be 1 to 4095");
    BAD((r.params.has_truncate_prompt_tokens = true, r.params.truncate_prompt_tokens = 4096),
        "truncate_prompt_tokens is 4096");
    BAD(r.num_speculative_tokens = 17, "num_speculative_tokens is 17: must be 0 to 16");
    BAD(r.input.kind = FT_WIRE_INPUT_NONE, "no input");
    BAD(r.request_id = ft_str_c("bad\nid"), "request_id");
    BAD((r.request_id = (struct ft_str){"a\0b", 3}), "request_id");
#undef BAD
    require_neighbours();
    cluster_stop(&g_cluster);
}
END_TEST

/* What an operator's service says must hold for every answer, unless it lets requests choose. */
START_TEST(lossy_rules_need_leave_of_the_service) {
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model("cyc"),
        .draft_dir = ft_fixture_model("cyc-draft"),
    };
    static const char *const services[] = {"standard", "lenient"};
    for (int i = 0; i < 2; i++) {
        char rule[64];
        snprintf(rule, sizeof rule, "--rejection_sample_method=%s", services[i]);
        opts.args[CLUSTER_COORDINATOR][0] = rule;
        cluster_start(&g_cluster, &opts);
        struct ft_wire_generate r = gen_text("a", 5, 4);
        r.spec.rejection_sample_method = ft_str_c("synthetic");
        require_refused(&r, INVALID,
                        "rejection_sample_method is 'synthetic': it changes the distribution, and "
                        "this service has not set allow_lossy");
        r.spec.rejection_sample_method = ft_str_c("lenient");
        r.spec.has_lenience = true;
        r.spec.lenience = 0.4f; /* the service's is 0.5 */
        require_refused(&r, INVALID,
                        i == 0 ? "rejection_sample_method is 'lenient': it changes"
                               : "lenience is 0.4: must be at least 0.5, the service's");
        r.spec.lenience = 0.6f;
        if (i == 0)
            require_refused(&r, INVALID, "rejection_sample_method is 'lenient': it changes");
        else
            gen_run(&g_cluster, &r, &g_gen);
        ck_assert(i == 0 || (g_gen.status.code == 0 && g_gen.spec.lossy));
        gen_fini(&g_gen);
        r = gen_text("a", 5, 4);
        r.spec.rejection_sample_method = ft_str_c("block");
        gen_run(&g_cluster, &r, &g_gen);
        ck_assert(g_gen.status.code == 0 && !g_gen.spec.lossy);
        gen_fini(&g_gen);
        cluster_stop(&g_cluster);
    }
}
END_TEST

START_TEST(n_past_a_clients_share_is_refused_by_name) {
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model("cyc"),
        .args = {[CLUSTER_COORDINATOR] = {"--max_requests_per_client=3"}},
    };
    struct ft_wire_generate r = gen_text("a", 5, 4);
    r.params.has_n = true;
    r.params.n = 4;
    cluster_start(&g_cluster, &opts);
    require_refused(&r, INVALID, "n is 4: at most 3 (max_requests_per_client)");
    r.params.n = 3;
    gen_run(&g_cluster, &r, &g_gen);
    ck_assert_msg(g_gen.status.code == 0, "%s", g_gen.status.text);
    gen_fini(&g_gen);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(speculative_parameters_are_refused_by_name) {
    static const float rates[17] = {1, 1, 1.5f};
    cluster_start_pair(&g_cluster, "cyc", "cyc-draft", "--allow_lossy=true");
    start_neighbours();
#define BAD(rule, change, says)                                                                    \
    do {                                                                                           \
        struct ft_wire_generate r = gen_text("a", 5, 4);                                           \
        r.spec.rejection_sample_method = ft_str_c(rule);                                           \
        change;                                                                                    \
        require_refused(&r, INVALID, says);                                                        \
    } while (0)
    BAD("warp\n", (void)0,
        "rejection_sample_method is 'warp?': must be one of standard, coupled, block, lenient, "
        "synthetic");
    BAD("Standard", (void)0, "rejection_sample_method is 'Standard'");
    BAD("", (r.spec.has_lenience = true, r.spec.lenience = 0.5f),
        "lenience is set: it is of the rule lenient, and rejection_sample_method is standard");
    BAD("lenient", r.spec.has_lenience = true, "lenience is 0: must be 0.01 to 1");
    BAD("lenient", (r.spec.has_lenience = true, r.spec.lenience = 1.1f), "lenience is 1.1");
    BAD("lenient", (r.spec.has_lenience = true, r.spec.lenience = NAN), "lenience is ");
    BAD("synthetic", (void)0, "set synthetic_acceptance_length or synthetic_acceptance_rates");
    BAD("block",
        (r.spec.has_synthetic_acceptance_length = true, r.spec.synthetic_acceptance_length = 2),
        "synthetic_acceptance_length is set: it is of the rule synthetic");
    BAD("synthetic",
        (r.spec.has_synthetic_acceptance_length = true, r.spec.synthetic_acceptance_length = 5.5f),
        "synthetic_acceptance_length is 5.5: must be 1 to 5 (1 + num_speculative_tokens)");
    BAD("synthetic", r.spec.has_synthetic_acceptance_length = true,
        "synthetic_acceptance_length is 0");
    BAD("synthetic",
        (r.spec.synthetic_acceptance_rates = rates, r.spec.n_synthetic_acceptance_rates = 3),
        "synthetic_acceptance_rates[2] is 1.5: must be 0 to 1");
    BAD("synthetic",
        (r.spec.synthetic_acceptance_rates = rates, r.spec.n_synthetic_acceptance_rates = 17),
        "synthetic_acceptance_rates has 17 entries: at most 16");
    BAD("synthetic",
        (r.spec.synthetic_acceptance_rates = rates, r.spec.n_synthetic_acceptance_rates = 2,
         r.spec.has_synthetic_acceptance_length = true, r.spec.synthetic_acceptance_length = 2),
        "both set");
    BAD("", (r.spec.has_draft_temperature = true, r.spec.draft_temperature = -1),
        "draft_temperature is -1: must be 0 to 100");
    BAD("", (r.spec.has_draft_top_p = true, r.spec.draft_top_p = NAN), "draft_top_p is ");
    BAD("", (r.spec.has_draft_top_k = true, r.spec.draft_top_k = -2), "draft_top_k is -2");
#undef BAD
    require_neighbours();
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(unsupported_input_is_refused_not_ignored) {
    cluster_start_pair(&g_cluster, "cyc", "cyc-draft", "--allow_lossy=true");
    struct ft_wire_generate r = gen_request();
    struct ft_wire_chat_message message = {ft_str_c("user"), ft_str_c("hi")};
    r.input =
        (struct ft_wire_prompt){.kind = FT_WIRE_INPUT_CHAT, .messages = &message, .n_messages = 1};
    require_refused(&r, UNIMPLEMENTED, "chat");
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev29_ids_out_of_range_are_refused_in_every_field) {
    static const int32_t bad[] = {-1, 264, 383, 384, INT32_MAX, INT32_MIN};
    cluster_start_pair(&g_cluster, "cyc", "cyc-draft", "--allow_lossy=true");
    start_neighbours();
    for (size_t i = 0; i < 6; i++) {
        char says[64];
        snprintf(says, sizeof says, "%d", bad[i]);
        struct ft_wire_generate r = gen_request();
        int32_t ids[] = {'a', bad[i]};
        r.input = (struct ft_wire_prompt){.kind = FT_WIRE_INPUT_IDS, .ids = ids, .n_ids = 2};
        require_refused(&r, INVALID, says);
        r = gen_text("a", 5, 4);
        r.params.stop_token_ids = &bad[i];
        r.params.n_stop_token_ids = 1;
        require_refused(&r, INVALID, says);
        r = gen_text("a", 5, 4);
        struct ft_bias bias = {bad[i], 1.0f};
        r.params.logit_bias = &bias;
        r.params.n_logit_bias = 1;
        require_refused(&r, INVALID, says);
        r = gen_text("a", 5, 4);
        r.params.allowed_token_ids = ids;
        r.params.n_allowed_token_ids = 2;
        require_refused(&r, INVALID, "allowed_token_ids[1]");
        r = gen_text("a", 5, 4);
        r.params.banned_token_ids = ids;
        r.params.n_banned_token_ids = 2;
        require_refused(&r, INVALID, "banned_token_ids[1]");
    }
    static struct ft_bias many[65536];
    for (int32_t i = 0; i < 65536; i++)
        many[i] = (struct ft_bias){i, 0.0f};
    struct ft_wire_generate r = gen_text("a", 5, 4);
    r.params.logit_bias = many;
    r.params.n_logit_bias = 65536;
    require_refused(&r, INVALID, "logit_bias");
    static int32_t ids[1025];
    r = gen_text("a", 5, 4);
    r.params.banned_token_ids = ids;
    r.params.n_banned_token_ids = 1025;
    require_refused(&r, INVALID, "banned_token_ids has 1025 ids: at most 1024");
    require_neighbours();
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev30_empty_prompts_are_refused_beside_live_streams) {
    cluster_start_pair(&g_cluster, "cyc", "cyc-draft", "--allow_lossy=true");
    start_neighbours();
    struct ft_wire_generate r = gen_text("", 5, 4);
    require_refused(&r, INVALID, "empty");
    r.input = (struct ft_wire_prompt){.kind = FT_WIRE_INPUT_IDS};
    require_refused(&r, INVALID, "empty");
    r = gen_text(" ", 5, 4);
    gen_run(&g_cluster, &r, &g_gen);
    ck_assert_int_eq(g_gen.status.code, 0);
    gen_fini(&g_gen);
    r.input.text = (struct ft_str){"\0", 1};
    gen_run(&g_cluster, &r, &g_gen);
    ck_assert_int_eq(g_gen.status.code, 0);
    ck_assert_uint_eq(g_gen.usage.prompt_tokens, 1);
    gen_fini(&g_gen);
    require_neighbours();
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(text_that_is_not_utf8_is_refused_with_the_offset) {
    cluster_start_pair(&g_cluster, "cyc", "cyc-draft", "--allow_lossy=true");
    struct ft_wire_generate r = gen_text("", 5, 4);
    r.input.text = (struct ft_str){"abc\xFFxyz", 7};
    require_refused(&r, INVALID, "3");
    struct ft_str stop = {"\xC3", 1};
    r = gen_text("a", 5, 4);
    r.params.stop = &stop;
    r.params.n_stop = 1;
    require_refused(&r, INVALID, "stop[0] is not UTF-8");
    stop = (struct ft_str){"", 0};
    require_refused(&r, INVALID, "stop[0] has 0 bytes");
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev31_prompts_around_the_limits_are_right_or_refused) {
    static const int lengths[] = {255, 256, 257, 511, 513, 4094, 4095, 4096, 4097, 100000};
    static char text[100001];
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model("r7"),
        .draft_dir = ft_fixture_model("r7n"),
        .args = {{"--max_num_batched_tokens=256"},
                 {"--max_num_batched_tokens=128"},
                 {"--max_num_batched_tokens=256", NULL}},
    };
    cluster_start(&g_cluster, &opts);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        memset(text, 'm', (size_t)lengths[i]);
        text[lengths[i]] = 0;
        struct ft_wire_generate r = gen_text(text, 1, 4);
        r.params.ignore_eos = true;
        if (lengths[i] >= 4096) {
            require_refused(&r, INVALID, "4095");
            continue;
        }
        gen_run(&g_cluster, &r, &g_gen);
        ck_assert_msg(g_gen.status.code == 0, "%s", g_gen.status.text);
        ck_assert_int_eq((int)g_gen.usage.prompt_tokens, lengths[i]);
        ck_assert_uint_eq(g_gen.n_ids, 1);
        gen_fini(&g_gen);
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev40_request_that_can_never_fit_is_refused_at_once) {
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model("r7"),
        .draft_dir = ft_fixture_model("r7n"),
        /* r7: 2 layers x 1 KV head x 64 x 2 x 4 bytes = 1 KiB a position: 32 blocks of 16 */
        .args = {{"--kv_cache_bytes=512Ki", "--enable_prefix_caching=false"}},
    };
    static char text[601];
    cluster_start(&g_cluster, &opts);
    memset(text, 'x', 600);
    struct ft_wire_generate big = gen_text(text, 8, 4);
    require_refused(&big, INVALID,
                    "the prompt has 600 tokens: at most 512 fit the target's KV pool (32 blocks of "
                    "16 positions)");
    struct ft_wire_generate longer = gen_text("small", 509, 4);
    require_refused(
        &longer, INVALID,
        "max_tokens is 509: behind 5 prompt tokens at most 508 fit the target's KV pool");
    for (int i = 0; i < 5; i++) {
        struct ft_wire_generate small = gen_text("small", 8, 4);
        small.params.ignore_eos = true;
        gen_run(&g_cluster, &small, &g_gen);
        ck_assert_msg(g_gen.status.code == 0, "%s", g_gen.status.text);
        gen_fini(&g_gen);
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev57_oversized_message_is_refused_and_large_ones_work) {
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model("cyc"),
        .draft_dir = ft_fixture_model("cyc-draft"),
        .args = {[CLUSTER_COORDINATOR] = {"--max_message_bytes=1Mi"}},
    };
    cluster_start(&g_cluster, &opts);
    start_neighbours();
    static char text[2000000];
    memset(text, 'a', sizeof text);
    struct ft_wire_generate r = gen_text("", 5, 4);
    r.input.text = (struct ft_str){text, sizeof text};
    require_refused(&r, EXHAUSTED, "");
    r.input.text.len = 1000000;
    require_refused(&r, INVALID, "4095");
    require_neighbours();
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(garbage_bytes_on_the_socket_disturb_nobody) {
    cluster_start_pair(&g_cluster, "cyc", "cyc-draft", "--allow_lossy=true");
    start_neighbours();
    char path[256];
    const char *sockets[] = {"public.sock", "target.sock", "draft.sock"};
    for (int i = 0; i < 30; i++) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        snprintf(path, sizeof path, "%s/%s", g_cluster.dir, sockets[i % 3]);
        snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
        char junk[512];
        for (size_t j = 0; j < sizeof junk; j++)
            junk[j] = (char)(j * 131 + (size_t)i * 7);
        if (i % 2 == 0)
            memcpy(junk, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
        ssize_t n = send(fd, junk, sizeof junk, MSG_NOSIGNAL);
        ck_assert_int_gt((int)n, 0);
        close(fd);
    }
    require_neighbours();
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(queue_full_is_resource_exhausted) {
    static struct gen gens[8];
    struct gen *all[8];
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model("cyc"),
        .draft_dir = ft_fixture_model("cyc-draft"),
        .args = {[CLUSTER_COORDINATOR] = {"--max_num_seqs=1", "--max_queue=2"}},
    };
    cluster_start(&g_cluster, &opts);
    int refused = 0;
    for (int i = 0; i < 8; i++) {
        struct ft_wire_generate r = gen_text("a", 500, 4);
        all[i] = &gens[i];
        gen_start(&g_cluster, &r, all[i]);
    }
    gen_wait(&g_cluster, all, 8);
    for (int i = 0; i < 8; i++) {
        refused += gens[i].status.code == EXHAUSTED;
        ck_assert(gens[i].status.code == 0 || gens[i].status.code == EXHAUSTED);
        gen_fini(&gens[i]);
    }
    ck_assert_int_ge(refused, 4);
    ck_assert_int_le(refused, 5);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev17_non_finite_logits_fail_that_request_only) {
    static const char *const prompts[] = {"a", "az", "a"};
    struct gen *all[3];
    cluster_start_pair(&g_cluster, "nant", "cyc", "--allow_lossy=true");
    for (int i = 0; i < 3; i++) {
        struct ft_wire_generate r = gen_text(prompts[i], 50, 4);
        all[i] = &g_neighbours[i];
        gen_start(&g_cluster, &r, all[i]);
    }
    gen_wait(&g_cluster, all, 3);
    for (int i = 0; i < 3; i++) {
        if (i == 1) {
            ck_assert_int_eq(all[i]->status.code, 13);
            ck_assert_ptr_nonnull(strstr(all[i]->status.text, "finite"));
        } else {
            ck_assert_int_eq(all[i]->status.code, 0);
            ck_assert_uint_eq(all[i]->n_ids, 50);
        }
        gen_fini(all[i]);
    }
    ck_assert_uint_ge(cluster_stats(&g_cluster).nan_rows_total, 1);
    cluster_stop(&g_cluster);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("e2e_validate");
    TCase *tc = tcase_create("validate");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, bad_parameters_are_refused_by_name);
    tcase_add_test(tc, lossy_rules_need_leave_of_the_service);
    tcase_add_test(tc, n_past_a_clients_share_is_refused_by_name);
    tcase_add_test(tc, speculative_parameters_are_refused_by_name);
    tcase_add_test(tc, unsupported_input_is_refused_not_ignored);
    tcase_add_test(tc, dev29_ids_out_of_range_are_refused_in_every_field);
    tcase_add_test(tc, dev30_empty_prompts_are_refused_beside_live_streams);
    tcase_add_test(tc, text_that_is_not_utf8_is_refused_with_the_offset);
    tcase_add_test(tc, dev31_prompts_around_the_limits_are_right_or_refused);
    tcase_add_test(tc, dev40_request_that_can_never_fit_is_refused_at_once);
    tcase_add_test(tc, dev57_oversized_message_is_refused_and_large_ones_work);
    tcase_add_test(tc, garbage_bytes_on_the_socket_disturb_nobody);
    tcase_add_test(tc, queue_full_is_resource_exhausted);
    tcase_add_test(tc, dev17_non_finite_logits_fail_that_request_only);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
