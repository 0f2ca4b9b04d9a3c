/* TLS between a server and clients of common/rpc, over real sockets. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "support/certs.h"
#include "support/rpc_fixture.h"

static struct ft_rpc_tls *g_tls;
static struct ft_rpc_server *g_server;
static char g_endpoint[64];

static struct ft_rpc_tls *tls_of(const char *cert, const char *key, const char *client_ca) {
    struct ft_rpc_tls_files files = {.cert = certs_path(cert), .key = certs_path(key)};
    struct ft_rpc_tls *tls = NULL;
    struct ft_err err = {0};
    if (client_ca != NULL)
        files.client_ca = certs_path(client_ca);
    ck_assert_msg(ft_rpc_tls_create(&tls, &files, &err) == FT_OK, "%s", err.text);
    return tls;
}

static void serve(const char *cert, const char *key, const char *client_ca) {
    int port = 0;
    g_tls = tls_of(cert, key, client_ca);
    struct ft_rpc_server_opts opts = {.methods = k_rpc_echo_methods,
                                      .n_methods = k_rpc_echo_n_methods,
                                      .service = &fx.echo,
                                      .tls = g_tls};
    g_server = rpc_fixture_serve("127.0.0.1:0", &opts, &port);
    snprintf(g_endpoint, sizeof g_endpoint, "127.0.0.1:%d", port);
}

static void stop(void) {
    ft_rpc_server_close(&g_server, 0);
    ft_rpc_tls_destroy(&g_tls);
    rpc_fixture_teardown();
}

/* A fresh connection, one call, its answer. */
static struct rpc_answer ask_with(const struct ft_rpc_client_opts *opts) {
    struct ft_rpc_call_opts call = {.deadline_ns = rpc_in_ms(5000)};
    struct ft_rpc_client *client = rpc_fixture_connect(g_endpoint, opts);
    struct rpc_answer answer = rpc_ask(client, "/test.Echo/Unary", ft_str_c("secret"), &call);
    ft_rpc_client_close(&client);
    return answer;
}

static struct rpc_answer ask_tls(const char *ca, const char *cert, const char *key) {
    struct ft_rpc_client_tls tls = {.ca = certs_path(ca)};
    if (cert != NULL) {
        tls.cert = certs_path(cert);
        tls.key = certs_path(key);
    }
    return ask_with(&(struct ft_rpc_client_opts){.tls = &tls});
}

static void assert_served(struct rpc_answer answer) {
    ck_assert_msg(answer.status.code == 0, "%s", answer.status.text);
    ck_assert_str_eq(answer.bytes, "secret");
}

static void assert_unavailable(struct rpc_answer answer) {
    ck_assert_msg(answer.status.code == 14, "%d %s", answer.status.code, answer.status.text);
    ck_assert_uint_gt(strlen(answer.status.text), 0);
}

START_TEST(client_that_knows_the_authority_is_served) {
    serve("server.pem", "server.key", NULL);
    assert_served(ask_tls("ca.pem", NULL, NULL));
    stop();
}
END_TEST

START_TEST(client_with_another_authority_does_not_trust_the_server) {
    serve("server.pem", "server.key", NULL);
    assert_unavailable(ask_tls("other-ca.pem", NULL, NULL));
    stop();
}
END_TEST

START_TEST(certificate_of_another_name_is_not_trusted) {
    serve("server.pem", "server.key", NULL);
    struct ft_rpc_client_tls tls = {.ca = certs_path("ca.pem"), .authority = "elsewhere"};
    assert_unavailable(ask_with(&(struct ft_rpc_client_opts){.tls = &tls}));
    tls.authority = "localhost";
    assert_served(ask_with(&(struct ft_rpc_client_opts){.tls = &tls}));
    stop();
}
END_TEST

START_TEST(plain_client_on_a_tls_port_ends_unavailable_and_nothing_leaks) {
    serve("server.pem", "server.key", NULL);
    int64_t begin_ns = ft_clock_now_ns();
    assert_unavailable(ask_with(NULL));
    ck_assert_int_lt(ft_clock_now_ns() - begin_ns, 4000000000); /* not by the deadline */
    ck_assert_int_eq(fx.echo.messages, 0);
    assert_served(ask_tls("ca.pem", NULL, NULL));
    stop();
}
END_TEST

START_TEST(tls_client_on_a_plain_port_ends_unavailable) {
    int port = 0;
    g_server = rpc_fixture_serve("127.0.0.1:0", NULL, &port);
    snprintf(g_endpoint, sizeof g_endpoint, "127.0.0.1:%d", port);
    int64_t begin_ns = ft_clock_now_ns();
    assert_unavailable(ask_tls("ca.pem", NULL, NULL));
    ck_assert_int_lt(ft_clock_now_ns() - begin_ns, 4000000000);
    assert_served(ask_with(NULL));
    stop();
}
END_TEST

START_TEST(server_that_asks_for_certificates_serves_its_own_clients_alone) {
    serve("server.pem", "server.key", "ca.pem");
    assert_served(ask_tls("ca.pem", "client.pem", "client.key"));
    assert_unavailable(ask_tls("ca.pem", NULL, NULL));
    assert_unavailable(ask_tls("ca.pem", "rogue.pem", "rogue.key"));
    ck_assert_int_eq(fx.echo.messages, 1);
    stop();
}
END_TEST

START_TEST(unix_socket_of_a_tls_server_speaks_plainly) {
    struct ft_err err = {0};
    struct ft_rpc_client_tls files = {.ca = certs_path("ca.pem")};
    struct ft_rpc_client *client = NULL;
    ck_assert_int_eq(ft_rpc_client_open(&client, fx.loop, fx.endpoint,
                                        &(struct ft_rpc_client_opts){.tls = &files}, &err),
                     FT_E_PROC_CONFIG);
    ck_assert_msg(strstr(err.text, "does not speak TLS") != NULL, "%s", err.text);
    rpc_fixture_teardown();
}
END_TEST

START_TEST(reload_gives_new_connections_the_new_certificate) {
    struct ft_err err = {0};
    bool changed = true;
    certs_copy("server.pem", "live.pem");
    certs_copy("server.key", "live.key");
    serve("live.pem", "live.key", NULL);
    struct ft_rpc_client_tls files = {.ca = certs_path("ca.pem")};
    struct ft_rpc_client *old =
        rpc_fixture_connect(g_endpoint, &(struct ft_rpc_client_opts){.tls = &files});
    assert_served(rpc_ask(old, "/test.Echo/Unary", ft_str_c("secret"), NULL));
    ck_assert_int_eq(ft_rpc_tls_reload(g_tls, &changed, &err), FT_OK);
    ck_assert(!changed);

    /* Of another authority: whoever is served by it has seen the new one. */
    certs_copy("rogue.pem", "live.pem");
    certs_copy("rogue.key", "live.key");
    ck_assert_msg(ft_rpc_tls_reload(g_tls, &changed, &err) == FT_OK, "%s", err.text);
    ck_assert(changed);
    assert_served(ask_tls("other-ca.pem", NULL, NULL));
    assert_unavailable(ask_tls("ca.pem", NULL, NULL));
    assert_served(rpc_ask(old, "/test.Echo/Unary", ft_str_c("secret"), NULL));
    ft_rpc_client_close(&old);
    stop();
}
END_TEST

START_TEST(reload_of_bad_files_keeps_what_is_in_force) {
    struct ft_err err = {0};
    bool changed = false;
    certs_copy("server.pem", "live.pem");
    certs_copy("server.key", "live.key");
    serve("live.pem", "live.key", NULL);
    certs_copy("server2.pem", "live.pem"); /* the key is still to come */
    ck_assert_int_eq(ft_rpc_tls_reload(g_tls, &changed, &err), FT_E_PROC_CONFIG);
    ck_assert(changed);
    ck_assert_msg(strstr(err.text, "live.key: the key does not belong") != NULL, "%s", err.text);
    assert_served(ask_tls("ca.pem", NULL, NULL));
    ck_assert_int_eq(ft_rpc_tls_reload(g_tls, &changed, &err), FT_OK); /* said once */
    ck_assert(!changed);
    certs_copy("server2.key", "live.key");
    ck_assert_int_eq(ft_rpc_tls_reload(g_tls, &changed, &err), FT_OK);
    ck_assert(changed);
    assert_served(ask_tls("ca.pem", NULL, NULL));
    stop();
}
END_TEST

START_TEST(bad_files_are_named) {
    static const struct {
        const char *cert, *key, *client_ca, *file, *says;
    } rows[] = {
        {"absent.pem", "server.key", NULL, "absent.pem", "No such file"},
        {"server.pem", "absent.key", NULL, "absent.key", "No such file"},
        {"server.key", "server.key", NULL, "server.key", "no PEM certificate"},
        {"server.pem", "server.pem", NULL, "server.pem", "no PEM private key"},
        {"server.pem", "server2.key", NULL, "server2.key", "does not belong"},
        {"expired.pem", "expired.key", NULL, "expired.pem", "not valid after"},
        {"server.pem", "server.key", "ca.key", "ca.key", "no PEM certificate"},
        {"server.pem", "server.key", "absent.pem", "absent.pem", "No such file"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ft_rpc_tls_files files = {.cert = certs_path(rows[i].cert),
                                         .key = certs_path(rows[i].key)};
        struct ft_rpc_tls *tls = NULL;
        struct ft_err err = {0};
        if (rows[i].client_ca != NULL)
            files.client_ca = certs_path(rows[i].client_ca);
        ck_assert_int_eq(ft_rpc_tls_create(&tls, &files, &err), FT_E_PROC_CONFIG);
        ck_assert_ptr_null(tls);
        ck_assert_msg(strstr(err.text, rows[i].file) != NULL &&
                          strstr(err.text, rows[i].says) != NULL,
                      "%zu: %s", i, err.text);
    }
    rpc_fixture_teardown();
}
END_TEST

START_TEST(token_is_not_sent_in_the_clear_beyond_this_host) {
    struct ft_err err = {0};
    struct ft_rpc_client *client = NULL;
    struct ft_rpc_client_opts opts = {.bearer = "s3cret"};
    ck_assert_int_eq(ft_rpc_client_open(&client, fx.loop, "192.0.2.1:50051", &opts, &err),
                     FT_E_PROC_CONFIG);
    ck_assert_msg(strstr(err.text, "without TLS") != NULL, "%s", err.text);
    ck_assert_ptr_null(strstr(err.text, "s3cret"));
    client = rpc_fixture_connect("127.0.0.1:9", &opts);
    ft_rpc_client_close(&client);
    rpc_fixture_teardown();
}
END_TEST

int main(void) {
    if (!certs_make()) {
        printf("skipped: no openssl program\n");
        return 77;
    }
    Suite *suite = suite_create("rpc_tls");
    TCase *t = tcase_create("rpc_tls");
    tcase_add_checked_fixture(t, rpc_fixture_setup, NULL);
    tcase_add_test(t, client_that_knows_the_authority_is_served);
    tcase_add_test(t, client_with_another_authority_does_not_trust_the_server);
    tcase_add_test(t, certificate_of_another_name_is_not_trusted);
    tcase_add_test(t, plain_client_on_a_tls_port_ends_unavailable_and_nothing_leaks);
    tcase_add_test(t, tls_client_on_a_plain_port_ends_unavailable);
    tcase_add_test(t, server_that_asks_for_certificates_serves_its_own_clients_alone);
    tcase_add_test(t, unix_socket_of_a_tls_server_speaks_plainly);
    tcase_add_test(t, reload_gives_new_connections_the_new_certificate);
    tcase_add_test(t, reload_of_bad_files_keeps_what_is_in_force);
    tcase_add_test(t, bad_files_are_named);
    tcase_add_test(t, token_is_not_sent_in_the_clear_beyond_this_host);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    certs_remove();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
