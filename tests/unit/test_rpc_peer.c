/* Who may connect to a Unix socket, and which calls a server lets in. */
#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/rpc_fixture.h"
#include "support/rpc_main.h"

#define STRANGER 65534 /* nobody */

static uint32_t g_refused_uid;
static int g_n_refused;

static void note_refused(void *service, uint32_t uid) {
    (void)service;
    g_refused_uid = uid;
    g_n_refused++;
}

static void setup(void) {
    rpc_fixture_setup();
    g_n_refused = 0; /* suites run without processes of their own, too */
}

static struct ft_rpc_server_opts opts_with(struct ft_rpc_socket_rule rule) {
    return (struct ft_rpc_server_opts){.methods = k_rpc_echo_methods,
                                       .n_methods = k_rpc_echo_n_methods,
                                       .service = &fx.echo,
                                       .socket = rule,
                                       .on_peer_refused = note_refused};
}

static int connect_unix(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 ? fd : -errno;
}

/* A visitor's last word; killed, it leaves no report of what it has in memory, which is the
 * server's, to a checker of leaks. */
static void leave(int fd, char seen) {
    if (write(fd, &seen, 1) == 1)
        raise(SIGKILL);
    _exit(1);
}

static void visit(int fd, uid_t uid) {
    char first;
    if (setgroups(0, NULL) != 0 || setgid(uid) != 0 || setuid(uid) != 0)
        leave(fd, 3);
    int connection = connect_unix(fx.path);
    if (connection < 0)
        leave(fd, 2);
    struct pollfd p = {.fd = connection, .events = POLLIN};
    poll(&p, 1, 10000);
    leave(fd, recv(connection, &first, 1, 0) == 1 ? 1 : 0);
}

/* What a process of user uid sees: 1 when the server says its HTTP/2 settings, 0 when it hangs up,
 * 2 when it cannot even connect. */
static int visit_as(uid_t uid) {
    int fds[2];
    chmod(fx.folder, 0755);
    ck_assert_int_eq(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0)
        visit(fds[1], uid);
    close(fds[1]);
    while (waitpid(pid, NULL, WNOHANG) == 0)
        rpc_run_ms(2);
    char seen = 9;
    ck_assert_int_eq(read(fds[0], &seen, 1), 1);
    close(fds[0]);
    return seen;
}

static void assert_mode(unsigned mode) {
    struct stat st;
    ck_assert_int_eq(stat(fx.path, &st), 0);
    ck_assert(S_ISSOCK(st.st_mode));
    ck_assert_uint_eq(st.st_mode & 0777, mode);
}

START_TEST(own_user_is_served_and_named) {
    struct rpc_answer a = rpc_ask(fx.client, "/test.Echo/Peer", ft_str_c("x"), NULL);
    char wanted[32];
    snprintf(wanted, sizeof wanted, "unix:uid=%u", (unsigned)geteuid());
    ck_assert_str_eq(a.bytes, wanted);
}
END_TEST

START_TEST(mode_and_group_are_those_of_the_rule) {
    static const unsigned modes[] = {0600, 0660, 0666};
    char group[16];
    snprintf(group, sizeof group, "%u", (unsigned)getegid());
    assert_mode(0600);
    for (size_t i = 0; i < 3; i++) {
        struct ft_rpc_server_opts opts =
            opts_with((struct ft_rpc_socket_rule){.mode = modes[i], .group = group});
        rpc_fixture_restart(&opts);
        assert_mode(modes[i]);
    }
}
END_TEST

START_TEST(stranger_is_turned_away_though_the_mode_lets_him_in) {
    if (geteuid() != 0)
        return; /* only root can be somebody else */
    struct ft_rpc_server_opts opts = opts_with((struct ft_rpc_socket_rule){.mode = 0666});
    rpc_fixture_restart(&opts);
    ck_assert_int_eq(visit_as(STRANGER), 0);
    rpc_run_ms(20);
    ck_assert_int_eq(g_n_refused, 1);
    ck_assert_uint_eq(g_refused_uid, STRANGER);
    struct rpc_answer a = rpc_ask(fx.client, "/test.Echo/Unary", ft_str_c("x"), NULL);
    ck_assert_int_eq(a.status.code, 0);
}
END_TEST

START_TEST(users_of_the_rule_are_served) {
    if (geteuid() != 0)
        return;
    static const char *const users[] = {"65534", "nobody", "daemon,nobody", "*"};
    for (size_t i = 0; i < sizeof users / sizeof users[0]; i++) {
        struct ft_rpc_server_opts opts =
            opts_with((struct ft_rpc_socket_rule){.mode = 0666, .users = users[i]});
        rpc_fixture_restart(&opts);
        ck_assert_msg(visit_as(STRANGER) == 1, "%s", users[i]);
    }
    ck_assert_int_eq(g_n_refused, 0);
}
END_TEST

START_TEST(mode_is_the_first_gate) {
    if (geteuid() != 0)
        return;
    struct ft_rpc_server_opts opts = opts_with((struct ft_rpc_socket_rule){.users = "*"});
    rpc_fixture_restart(&opts);
    ck_assert_int_eq(visit_as(STRANGER), 2);
}
END_TEST

START_TEST(rule_that_names_nobody_is_refused) {
    static const struct {
        struct ft_rpc_socket_rule rule;
        const char *says;
    } rows[] = {{{.users = "no-such-user-here"}, "no user 'no-such-user-here'"},
                {{.group = "no-such-group-here"}, "no group 'no-such-group-here'"},
                {{.users = "root,,daemon"}, "comma-separated"},
                {{.users = "4294967295"}, "no user '4294967295'"}};
    char endpoint[160];
    snprintf(endpoint, sizeof endpoint, "%s2", fx.endpoint);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ft_rpc_server_opts opts = opts_with(rows[i].rule);
        struct ft_rpc_server *server = NULL;
        struct ft_err err = {0};
        ck_assert_int_eq(ft_rpc_server_create(&server, fx.loop, &opts, &err), FT_OK);
        ck_assert_int_eq(ft_rpc_server_listen(server, endpoint, NULL, &err), FT_E_PROC_CONFIG);
        ck_assert_msg(strstr(err.text, rows[i].says) != NULL, "%s", err.text);
        ft_rpc_server_close(&server, 0); /* teardown finds that nothing was left */
    }
}
END_TEST

START_TEST(connections_on_the_way_when_the_server_closes_are_closed) {
    int fds[64];
    for (int i = 0; i < 64; i++)
        fds[i] = connect_unix(fx.path);
    ft_rpc_server_close(&fx.server, 0);
    for (int i = 0; i < 64; i++) {
        char bytes[512];
        ck_assert_int_ge(fds[i], 0);
        while (recv(fds[i], bytes, sizeof bytes, 0) > 0)
            ;
        close(fds[i]);
    }
    fx.server = rpc_fixture_serve(fx.endpoint, NULL, NULL);
}
END_TEST

/* ---- admit ----------------------------------------------------------------------------------- */

static enum ft_code admit_by_token(struct ft_rpc_call *call, void *service, struct ft_err *err) {
    (void)service;
    struct ft_str token = ft_rpc_call_metadata(call, "authorization");
    if (ft_str_eq(token, ft_str_c("Bearer good")))
        return FT_OK;
    ft_rpc_call_trailer(call, "x-why", "token");
    return ft_err_set(err, FT_E_REQ_UNAUTHENTICATED, "test", "%s is not for you",
                      ft_rpc_call_path(call));
}

START_TEST(call_that_is_not_admitted_reaches_no_handler) {
    struct ft_rpc_server_opts opts = opts_with((struct ft_rpc_socket_rule){0});
    opts.admit = admit_by_token;
    rpc_fixture_restart(&opts);
    struct rpc_answer a = rpc_ask(fx.client, "/test.Echo/Unary", ft_str_c("x"), NULL);
    ck_assert_int_eq(a.status.code, 16);
    ck_assert_str_eq(a.status.text, "/test.Echo/Unary is not for you");
    struct rpc_talk talk = {0};
    rpc_talk_open(&talk, fx.client, "/test.Echo/Bidi", NULL);
    ft_rpc_stream_send(talk.stream, ft_str_c("0"));
    ck_assert(rpc_wait_int(&talk.done, 1, 10000));
    ck_assert_int_eq(talk.status.code, 16);
    rpc_run_ms(20);
    ck_assert_int_eq(fx.echo.opened + fx.echo.messages + fx.echo.gone, 0);
}
END_TEST

START_TEST(token_of_the_client_goes_with_each_call) {
    struct ft_rpc_server_opts opts = opts_with((struct ft_rpc_socket_rule){0});
    opts.admit = admit_by_token;
    rpc_fixture_restart(&opts);
    struct ft_rpc_client *client =
        rpc_fixture_connect(fx.endpoint, &(struct ft_rpc_client_opts){.bearer = "good"});
    struct ft_rpc_call_opts call = {.metadata_key = "x-key", .metadata_value = "kept"};
    struct rpc_answer a = rpc_ask(client, "/test.Echo/Meta", ft_str_c("x"), &call);
    ck_assert_msg(a.status.code == 0, "%s", a.status.text);
    ck_assert_str_eq(a.bytes, "kept");
    struct rpc_talk talk = {0};
    rpc_talk_open(&talk, client, "/test.Echo/Bidi", NULL);
    ft_rpc_stream_send(talk.stream, ft_str_c("0"));
    ck_assert(rpc_wait_int(&talk.messages, 1, 10000));
    ft_rpc_client_close(&client);
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("rpc_peer");
    TCase *t = tcase_create("rpc_peer");
    tcase_add_checked_fixture(t, setup, rpc_fixture_teardown);
    tcase_add_test(t, own_user_is_served_and_named);
    tcase_add_test(t, mode_and_group_are_those_of_the_rule);
    tcase_add_test(t, stranger_is_turned_away_though_the_mode_lets_him_in);
    tcase_add_test(t, users_of_the_rule_are_served);
    tcase_add_test(t, mode_is_the_first_gate);
    tcase_add_test(t, rule_that_names_nobody_is_refused);
    tcase_add_test(t, connections_on_the_way_when_the_server_closes_are_closed);
    tcase_add_test(t, call_that_is_not_admitted_reaches_no_handler);
    tcase_add_test(t, token_of_the_client_goes_with_each_call);
    suite_add_tcase(s, t);
    return s;
}
