#include <check.h>
#include <stdlib.h>

#include "common/wire/operate.h"
#include "common/wire/worker.h"
#include "support/suite.h"

static struct ft_arena *g_arena;
static struct ft_buf g_wire;
static struct ft_err g_err;

static void setup(void) {
    g_arena = ft_arena_create(4096, 1 << 20);
    ft_buf_init(&g_wire, 0);
}

static void teardown(void) {
    ft_arena_destroy(&g_arena);
    ft_buf_fini(&g_wire);
}

#define WIRE ft_buf_str(&g_wire), g_arena
#define SAME(a, text) ck_assert(ft_str_eq(a, ft_str_c(text)))

START_TEST(health_goes_there_and_back) {
    struct ft_wire_service_health in = {
        .state = ft_str_c("draining"),
        .reason = ft_str_c("tea"),
        .state_seconds = 1.5,
        .num_requests_running = 3,
        .num_requests_waiting = UINT32_MAX,
        .target_up = true,
        .has_draft = true,
        .target_trouble = ft_str_c(""),
        .draft_trouble = ft_str_c("not reached"),
    };
    struct ft_wire_service_health out;
    ft_wire_encode_service_health(&in, &g_wire);
    ck_assert_int_eq(ft_wire_decode_service_health(WIRE, &out, &g_err), FT_OK);
    SAME(out.state, "draining");
    SAME(out.reason, "tea");
    SAME(out.draft_trouble, "not reached");
    ck_assert(out.state_seconds == 1.5 && out.num_requests_running == 3);
    ck_assert(out.num_requests_waiting == UINT32_MAX);
    ck_assert(out.target_up && out.has_draft && !out.draft_up);
}
END_TEST

START_TEST(requests_go_there_and_back_in_order) {
    struct ft_wire_request_info *list;
    size_t n;
    ck_assert_int_eq(ft_wire_decode_requests(WIRE, &list, &n, &g_err), FT_OK);
    ck_assert_uint_eq(n, 0);
    for (int i = 0; i < 300; i++) {
        struct ft_wire_request_info in = {
            .request_id = ft_str_c("a"),
            .index = (uint32_t)i,
            .state = ft_str_c("running"),
            .age_seconds = 0.25,
            .prompt_tokens = 1,
            .output_tokens = 2,
            .max_tokens = 3,
            .num_speculative_tokens = 4,
            .drafter = ft_str_c("model"),
            .rejection_sample_method = ft_str_c("block"),
            .num_draft_tokens = UINT64_MAX,
            .num_accepted_tokens = 6,
            .priority = -7,
            .client = ft_str_c("unix:"),
            .fallback_reason = ft_str_c("draft worker down"),
        };
        ft_wire_encode_listed_request(&in, &g_wire);
    }
    ck_assert_int_eq(ft_wire_decode_requests(WIRE, &list, &n, &g_err), FT_OK);
    ck_assert_uint_eq(n, 300);
    const struct ft_wire_request_info *r = &list[299];
    ck_assert(r->index == 299 && r->priority == -7 && r->num_draft_tokens == UINT64_MAX);
    ck_assert(r->prompt_tokens == 1 && r->output_tokens == 2 && r->max_tokens == 3);
    ck_assert(r->num_speculative_tokens == 4 && r->num_accepted_tokens == 6);
    ck_assert(r->age_seconds == 0.25);
    SAME(r->request_id, "a");
    SAME(r->state, "running");
    SAME(r->drafter, "model");
    SAME(r->rejection_sample_method, "block");
    SAME(r->client, "unix:");
    SAME(r->fallback_reason, "draft worker down");
}
END_TEST

START_TEST(parameters_go_there_and_back_and_are_bounded) {
    struct ft_wire_parameter list[FT_WIRE_PARAMETERS_MAX];
    size_t n;
    for (int i = 0; i < FT_WIRE_PARAMETERS_MAX; i++)
        ft_wire_encode_parameter(&(struct ft_wire_parameter){ft_str_c("k"), ft_str_c("v")},
                                 &g_wire);
    ck_assert_int_eq(ft_wire_decode_parameters(WIRE, list, &n, &g_err), FT_OK);
    ck_assert_uint_eq(n, FT_WIRE_PARAMETERS_MAX);
    SAME(list[n - 1].name, "k");
    SAME(list[n - 1].value, "v");
    ft_wire_encode_parameter(&(struct ft_wire_parameter){ft_str_c("k"), ft_str_c("v")}, &g_wire);
    ck_assert_int_eq(ft_wire_decode_parameters(WIRE, list, &n, &g_err), FT_E_REQ_INVALID);
    ck_assert_ptr_nonnull(strstr(g_err.text, "SetParametersRequest.parameters"));
}
END_TEST

START_TEST(small_messages_go_there_and_back) {
    struct ft_str text;
    uint32_t n;
    struct ft_wire_draft_reloaded draft;
    struct ft_wire_reloaded worker;
    ft_wire_encode_cancel((struct ft_str){"a\0b", 3}, &g_wire);
    ck_assert_int_eq(ft_wire_decode_cancel(WIRE, &text, &g_err), FT_OK);
    ck_assert(ft_str_eq(text, (struct ft_str){"a\0b", 3}));
    ft_buf_reset(&g_wire);
    ft_wire_encode_cancelled(9, &g_wire);
    ck_assert_int_eq(ft_wire_decode_cancelled(WIRE, &n, &g_err), FT_OK);
    ck_assert_uint_eq(n, 9);
    ft_buf_reset(&g_wire);
    ft_wire_encode_drain(ft_str_c("tea"), &g_wire);
    ck_assert_int_eq(ft_wire_decode_drain(WIRE, &text, &g_err), FT_OK);
    SAME(text, "tea");
    ft_buf_reset(&g_wire);
    ft_wire_encode_reload_draft(ft_str_c("/m"), &g_wire);
    ck_assert_int_eq(ft_wire_decode_reload_draft(WIRE, &text, &g_err), FT_OK);
    SAME(text, "/m");
    ft_buf_reset(&g_wire);
    ft_wire_encode_reload(ft_str_c("/n"), &g_wire);
    ck_assert_int_eq(ft_wire_decode_reload(WIRE, &text, &g_err), FT_OK);
    SAME(text, "/n");
    ft_buf_reset(&g_wire);
    ft_wire_encode_draft_reloaded(&(struct ft_wire_draft_reloaded){UINT64_MAX, 0.5}, &g_wire);
    ck_assert_int_eq(ft_wire_decode_draft_reloaded(WIRE, &draft, &g_err), FT_OK);
    ck_assert(draft.epoch == UINT64_MAX && draft.load_seconds == 0.5);
    ft_buf_reset(&g_wire);
    ft_wire_encode_reloaded(&(struct ft_wire_reloaded){5, 6}, &g_wire);
    ck_assert_int_eq(ft_wire_decode_reloaded(WIRE, &worker, &g_err), FT_OK);
    ck_assert(worker.epoch == 5 && worker.load_nanos == 6);
}
END_TEST

START_TEST(noise_is_refused_or_read_and_never_more) {
    struct ft_wire_service_health health;
    struct ft_wire_request_info *list;
    struct ft_wire_parameter parameters[FT_WIRE_PARAMETERS_MAX];
    struct ft_str text;
    size_t n;
    uint64_t seed = 1;
    char noise[48];
    for (int i = 0; i < 20000; i++) {
        for (size_t j = 0; j < sizeof noise; j++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            noise[j] = (char)(j % 3 == 0 ? 0x0a : seed >> 56);
        }
        struct ft_str in = {noise, seed % sizeof noise};
        ft_arena_reset(g_arena);
        ft_wire_decode_service_health(in, g_arena, &health, &g_err);
        ft_wire_decode_requests(in, g_arena, &list, &n, &g_err);
        ft_wire_decode_parameters(in, g_arena, parameters, &n, &g_err);
        ft_wire_decode_drain(in, g_arena, &text, &g_err);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("wire_operate");
    TCase *tc = tcase_create("wire_operate");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, health_goes_there_and_back);
    tcase_add_test(tc, requests_go_there_and_back_in_order);
    tcase_add_test(tc, parameters_go_there_and_back_and_are_bounded);
    tcase_add_test(tc, small_messages_go_there_and_back);
    tcase_add_test(tc, noise_is_refused_or_read_and_never_more);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
