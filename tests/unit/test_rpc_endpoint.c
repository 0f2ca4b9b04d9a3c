#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "support/rpc_fixture.h"
#include "support/rpc_main.h"

/* What a further server gets when it asks for endpoint; the text of a refusal lies in err. */
static enum ft_code try_listen(const char *endpoint, struct ft_err *err) {
    struct ft_rpc_server_opts opts = {.methods = k_rpc_echo_methods, .n_methods = 1};
    struct ft_rpc_server *server = NULL;
    ck_assert_int_eq(ft_rpc_server_create(&server, fx.loop, &opts, err), FT_OK);
    enum ft_code code = ft_rpc_server_listen(server, endpoint, NULL, err);
    ft_rpc_server_close(&server, 0);
    return code;
}

static void ask_echo(struct ft_rpc_client *client) {
    struct rpc_answer a = rpc_ask(client, "/test.Echo/Unary", ft_str_c("ok"), NULL);
    ck_assert_msg(a.status.code == 0, "%s", a.status.text);
    ck_assert_str_eq(a.bytes, "ok");
}

/* Without descriptors a connection cannot be had, and with some again it can. */
START_TEST(listener_survives_a_process_without_descriptors) {
    struct rlimit limit, tight;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fds[8], fillers[64], n = 0;
    char byte;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", fx.path);
    for (; n < 8; n++) /* made before, connected after */
        fds[n] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ask_echo(fx.client);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    tight = limit;
    for (int i = 0; i < 64; i++) /* no number is free below the last one */
        fillers[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    tight.rlim_cur = (rlim_t)fillers[63] + 1;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &tight), 0);
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(connect(fds[i], (struct sockaddr *)&address, sizeof address), 0);
    for (int i = 0; i < 20; i++)
        ft_rpc_loop_step(fx.loop, ft_clock_now_ns() + 10000000);
    ask_echo(fx.client); /* a connection that was there goes on */
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < 64; i++)
        close(fillers[i]);
    for (int i = 0; i < n; i++) { /* the others were turned away, and know it */
        ck_assert_int_eq((int)recv(fds[i], &byte, 1, MSG_DONTWAIT), 0);
        close(fds[i]);
    }
    struct ft_rpc_client *fresh = NULL;
    ck_assert_int_eq(ft_rpc_client_open(&fresh, fx.loop, fx.endpoint, NULL, NULL), FT_OK);
    ask_echo(fresh);
    ft_rpc_client_close(&fresh);
}
END_TEST

START_TEST(bad_endpoint_is_refused_naming_the_fault) {
    char long_path[160] = "unix:/";
    memset(long_path + 6, 'p', 140);
    static const struct {
        const char *endpoint, *says;
    } rows[] = {{"", "unix:PATH or HOST:PORT"},   {"nothing", "unix:PATH or HOST:PORT"},
                {"unix:", "path is empty"},       {"127.0.0.1:", "the port is ''"},
                {"127.0.0.1:x", "port is 'x'"},   {"127.0.0.1:65536", "from 0 to 65535"},
                {"127.0.0.1:-1", "port is '-1'"}, {"127.0.0.1:99999999999999999999", "65535"},
                {":50051", "the host is ''"},     {"::1:50051", "in brackets"},
                {"[::1:5", "in brackets"},        {"[nope]:5", "in brackets"},
                {"a b:5", "the host is 'a b'"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ft_err err = {0};
        ck_assert_int_eq(try_listen(rows[i].endpoint, &err), FT_E_PROC_CONFIG);
        ck_assert_msg(strstr(err.text, rows[i].says) != NULL, "%s", err.text);
        struct ft_rpc_client *client = NULL;
        ck_assert_int_eq(ft_rpc_client_open(&client, fx.loop, rows[i].endpoint, NULL, &err),
                         FT_E_PROC_CONFIG);
    }
    struct ft_err err = {0};
    ck_assert_int_eq(try_listen(long_path, &err), FT_E_PROC_CONFIG);
    ck_assert_msg(strstr(err.text, "141 bytes, a Unix socket takes at most 107"), "%s", err.text);
    struct ft_rpc_client *client = NULL;
    ck_assert_int_eq(ft_rpc_client_open(&client, fx.loop, "127.0.0.1:0", NULL, &err),
                     FT_E_PROC_CONFIG);
}
END_TEST

START_TEST(unix_socket_is_private_whatever_the_umask) {
    umask(0);
    ft_rpc_server_close(&fx.server, 0);
    fx.server = rpc_fixture_serve(fx.endpoint, NULL, NULL);
    struct stat st;
    ck_assert_int_eq(stat(fx.path, &st), 0);
    ck_assert(S_ISSOCK(st.st_mode));
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    ck_assert_int_eq(umask(0), 0); /* put back */
}
END_TEST

START_TEST(second_server_does_not_steal_a_live_socket) {
    struct ft_err err = {0};
    ck_assert_int_eq(try_listen(fx.endpoint, &err), FT_E_PROC_CONFIG);
    char says[64];
    snprintf(says, sizeof says, "another server (process %d) listens there", (int)getpid());
    ck_assert_msg(strstr(err.text, says) != NULL, "%s", err.text);
    ck_assert_ptr_nonnull(strstr(err.text, fx.path));
    ask_echo(fx.client); /* neither refused nor closed server harmed the first */
    struct ft_rpc_client *fresh = rpc_fixture_connect(fx.endpoint, NULL);
    ask_echo(fresh);
    ft_rpc_client_close(&fresh);
}
END_TEST

static int bind_raw(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(fd, 4), 0);
    return fd;
}

START_TEST(live_socket_of_another_program_is_not_stolen) {
    char path[100], endpoint[160];
    snprintf(path, sizeof path, "%s/foreign", fx.folder);
    snprintf(endpoint, sizeof endpoint, "unix:%s", path);
    int fd = bind_raw(path);
    struct ft_err err = {0};
    ck_assert_int_eq(try_listen(endpoint, &err), FT_E_PROC_CONFIG);
    ck_assert_msg(strstr(err.text, "another server listens there") != NULL, "%s", err.text);
    close(fd); /* now the path is stale */
    ck_assert_int_eq(try_listen(endpoint, &err), FT_OK);
    ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

START_TEST(path_that_is_not_a_socket_is_left_alone) {
    char path[100], endpoint[160];
    snprintf(path, sizeof path, "%s/file", fx.folder);
    snprintf(endpoint, sizeof endpoint, "unix:%s", path);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    struct ft_err err = {0};
    ck_assert_int_eq(try_listen(endpoint, &err), FT_E_PROC_CONFIG);
    ck_assert_msg(strstr(err.text, "not a socket") != NULL, "%s", err.text);
    ck_assert_int_eq(unlink(path), 0);
    snprintf(endpoint, sizeof endpoint, "unix:%s/missing/s", fx.folder);
    ck_assert_int_eq(try_listen(endpoint, &err), FT_E_PROC_CONFIG);
    ck_assert_msg(strstr(err.text, "No such file") != NULL, "%s", err.text);
}
END_TEST

START_TEST(tcp_port_zero_is_given_and_a_second_server_is_refused) {
    int port = 0;
    struct ft_rpc_server *server = rpc_fixture_serve("127.0.0.1:0", NULL, &port);
    ck_assert_int_gt(port, 0);
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
    struct ft_err err = {0};
    ck_assert_int_eq(try_listen(endpoint, &err), FT_E_PROC_CONFIG);
    ck_assert_msg(strstr(err.text, endpoint) != NULL, "%s", err.text);
    ck_assert_msg(strstr(err.text, "Address already in use") != NULL, "%s", err.text);
    struct ft_rpc_client *client = rpc_fixture_connect(endpoint, NULL);
    ask_echo(client);
    ft_rpc_client_close(&client);
    ft_rpc_server_close(&server, 0);
    ck_assert_int_eq(try_listen(endpoint, &err), FT_OK);
    ck_assert_int_eq(try_listen("192.0.2.1:1", &err), FT_E_PROC_CONFIG);
    ck_assert_msg(strstr(err.text, "Cannot assign") != NULL, "%s", err.text);
}
END_TEST

/* "localhost", or its address on a system so bare that it has no /etc/hosts. */
static const char *local_host(void) {
    struct addrinfo *found = NULL;
    if (getaddrinfo("localhost", NULL, NULL, &found) != 0)
        return "127.0.0.1";
    freeaddrinfo(found);
    return "localhost";
}

START_TEST(one_server_listens_on_several_endpoints) {
    struct ft_rpc_server_opts opts = {
        .methods = k_rpc_echo_methods, .n_methods = k_rpc_echo_n_methods, .service = &fx.echo};
    char path[160], name[64];
    int port;
    struct ft_err err = {0};
    struct ft_rpc_server *server = NULL;
    snprintf(path, sizeof path, "unix:%s/other", fx.folder);
    snprintf(name, sizeof name, "%s:0", local_host());
    ck_assert_int_eq(ft_rpc_server_create(&server, fx.loop, &opts, &err), FT_OK);
    ck_assert_int_eq(ft_rpc_server_start(server, &err), FT_E_PROC_CONFIG); /* no endpoint yet */
    ck_assert_int_eq(ft_rpc_server_listen(server, path, NULL, &err), FT_OK);
    ck_assert_int_eq(ft_rpc_server_listen(server, name, &port, &err), FT_OK);
    ck_assert_int_eq(ft_rpc_server_start(server, &err), FT_OK);
    snprintf(name, sizeof name, "%s:%d", local_host(), port);
    struct ft_rpc_client *over_unix = rpc_fixture_connect(path, NULL);
    struct ft_rpc_client *over_tcp = rpc_fixture_connect(name, NULL);
    ask_echo(over_unix);
    ask_echo(over_tcp);
    ft_rpc_client_close(&over_unix);
    ft_rpc_client_close(&over_tcp);
    ft_rpc_server_close(&server, 0);
}
END_TEST

static int connect_tcp(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

START_TEST(garbage_on_the_port_disturbs_nobody) {
    int port = 0;
    struct ft_rpc_server *server = rpc_fixture_serve("127.0.0.1:0", NULL, &port);
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
    struct ft_rpc_client *client = rpc_fixture_connect(endpoint, NULL);
    struct rpc_talk talk = {0};
    rpc_talk_open(&talk, client, "/test.Echo/Bidi", NULL);
    ft_rpc_stream_send(talk.stream, ft_str_c("0"));
    ck_assert(rpc_wait_int(&talk.messages, 1, 10000));

    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    static const char http1[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    uint32_t x = 99;
    for (int i = 0; i < 40; i++) {
        int fd = connect_tcp(port);
        unsigned char noise[600];
        for (size_t k = 0; k < sizeof noise; k++) {
            x = x * 1664525u + 1013904223u;
            noise[k] = (unsigned char)(x >> 24);
        }
        ssize_t n = 0;
        if (i % 4 == 1)
            n = send(fd, preface, sizeof preface - 1, MSG_NOSIGNAL);
        if (i % 4 == 2)
            n = send(fd, http1, sizeof http1 - 1, MSG_NOSIGNAL);
        if (i % 4 != 3) /* the fourth connects and leaves */
            n = send(fd, noise, sizeof noise, MSG_NOSIGNAL);
        ck_assert_int_ge(n, -1);
        rpc_run_ms(2);
        close(fd);
    }
    ft_rpc_stream_send(talk.stream, ft_str_c("1"));
    ck_assert(rpc_wait_int(&talk.messages, 2, 10000));
    ck_assert(talk.in_order);
    ask_echo(client);
    ft_rpc_client_close(&client);
    ft_rpc_server_close(&server, 0);
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("rpc_endpoint");
    TCase *t = tcase_create("endpoint");
    tcase_add_checked_fixture(t, rpc_fixture_setup, rpc_fixture_teardown);
    tcase_add_test(t, listener_survives_a_process_without_descriptors);
    tcase_add_test(t, bad_endpoint_is_refused_naming_the_fault);
    tcase_add_test(t, unix_socket_is_private_whatever_the_umask);
    tcase_add_test(t, second_server_does_not_steal_a_live_socket);
    tcase_add_test(t, live_socket_of_another_program_is_not_stolen);
    tcase_add_test(t, path_that_is_not_a_socket_is_left_alone);
    tcase_add_test(t, tcp_port_zero_is_given_and_a_second_server_is_refused);
    tcase_add_test(t, one_server_listens_on_several_endpoints);
    tcase_add_test(t, garbage_on_the_port_disturbs_nobody);
    suite_add_tcase(s, t);
    return s;
}
