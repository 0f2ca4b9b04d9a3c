/* What the coordinator keeps of a worker, over a socket, with a worker that says what a test wants.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/wire/worker.h"
#include "coordinator/peer.h"
#include "support/fixtures.h"
#include "support/suite.h"

static struct ft_rpc_loop *g_loop;
static int g_n_asked, g_n_described;

/* The first answer is a worker's; those after it name others, and are broken at their end. */
static void on_describe(struct ft_rpc_call *call, void *service, struct ft_str message) {
    static const char fingerprint[FT_WIRE_FINGERPRINT_BYTES] = {1};
    bool is_first = g_n_asked++ == 0;
    (void)service;
    (void)message;
    struct ft_wire_describe describe = {
        .epoch = is_first ? 1 : 2,
        .role = ft_str_c("target"),
        .model_dir = ft_str_c(is_first ? "/models/first" : "/models/other"),
        .architecture = ft_str_c(is_first ? "FirstForTests" : "OtherForTests"),
        .tokenizer_fingerprint = {fingerprint, sizeof fingerprint - !is_first},
    };
    struct ft_buf out;
    ft_buf_init(&out, 0);
    ft_wire_encode_describe(&describe, &out);
    ft_rpc_call_reply(call, ft_buf_str(&out));
    ft_buf_fini(&out);
}

static enum ft_code on_described(void *user, struct co_peer *peer, struct ft_err *err) {
    (void)user;
    (void)peer;
    g_n_described++;
    return ft_err_set(err, FT_E_PEER_PROTOCOL, "test", "asked again");
}

START_TEST(describe_that_cannot_be_decoded_leaves_what_was_known) {
    static const struct ft_rpc_method methods[] = {{.path = FT_WIRE_TARGET_SERVICE "Describe",
                                                    .kind = FT_RPC_UNARY,
                                                    .on_message = on_describe}};
    static const struct co_peer_events events = {.on_described = on_described};
    struct ft_err err = {0};
    struct ft_rpc_server *server = NULL;
    struct co_peer *peer = NULL;
    struct ft_device *device = NULL;
    char endpoint[256];
    const char *dir = ft_fixture_temp_dir();
    snprintf(endpoint, sizeof endpoint, "unix:%s/s", dir);
    ck_assert_int_eq(ft_rpc_loop_create(&g_loop, 0, &err), FT_OK);
    struct ft_rpc_server_opts opts = {.methods = methods, .n_methods = 1};
    ck_assert_int_eq(ft_rpc_server_create(&server, g_loop, &opts, &err), FT_OK);
    ck_assert_int_eq(ft_rpc_server_listen(server, endpoint, NULL, &err), FT_OK);
    ck_assert_int_eq(ft_rpc_server_start(server, &err), FT_OK);
    struct co_peer_opts peer_opts = {.loop = g_loop,
                                     .role = "target",
                                     .endpoint = endpoint,
                                     .step_timeout_ms = 1000,
                                     .device = &device,
                                     .events = &events};
    ck_assert_int_eq(co_peer_open(&peer, &peer_opts, &err), FT_OK);
    int64_t until_ns = ft_clock_now_ns() + 20000000000;
    while (g_n_asked < 4 && ft_clock_now_ns() < until_ns)
        ft_rpc_loop_step(g_loop, until_ns);
    ck_assert_int_ge(g_n_asked, 4);
    ck_assert_int_eq(g_n_described, 1);
    ck_assert_msg(strstr(co_peer_trouble(peer), "fingerprint") != NULL, "%s",
                  co_peer_trouble(peer));
    const struct ft_wire_describe *known = co_peer_describe(peer);
    ck_assert_uint_eq(known->epoch, 1);
    ck_assert(ft_str_eq(known->model_dir, ft_str_c("/models/first")));
    ck_assert(ft_str_eq(known->architecture, ft_str_c("FirstForTests")));
    co_peer_close(&peer);
    ft_rpc_server_close(&server, 0);
    ft_rpc_loop_destroy(&g_loop);
    ft_fixture_remove_dir(dir);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("peer");
    TCase *tc = tcase_create("peer");
    tcase_add_test(tc, describe_that_cannot_be_decoded_leaves_what_was_known);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
