/* What systemd is told, through libsystemd, over a socket of ours in systemd's place. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/logfields.h"
#include "common/base/supervisor.h"
#include "common/rpc/watchdog.h"
#include "support/suite.h"

static char g_path[64];
static int g_socket = -1;

/* libsystemd reads the process's own environment, our code the one it is handed. */
static void listen_as_systemd(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(g_path, sizeof g_path, "/tmp/ft_notify.%d", (int)getpid());
    snprintf(address.sun_path, sizeof address.sun_path, "%s", g_path);
    unlink(g_path);
    g_socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(g_socket, (struct sockaddr *)&address, sizeof address), 0);
    struct timeval limit = {.tv_sec = 10};
    setsockopt(g_socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setenv("NOTIFY_SOCKET", g_path, 1);
}

static void stop_listening(void) {
    close(g_socket);
    unlink(g_path);
}

static const char *heard(void) {
    static char text[2048];
    ssize_t n = recv(g_socket, text, sizeof text - 1, 0);
    ck_assert_int_gt(n, 0);
    text[n] = 0;
    return text;
}

/* false where there is no libsystemd: the programs then run without it. */
static bool can_open(void) {
    const char *trouble = ft_supervisor_open(environ);
    if (*trouble == 0)
        return true;
    printf("not tested: %s\n", trouble);
    stop_listening();
    return false;
}

START_TEST(notify_without_a_supervisor_does_nothing) {
    char *envp[] = {(char *)(uintptr_t) "PATH=/bin", NULL};
    ck_assert_str_eq(ft_supervisor_open(envp), "");
    ck_assert(ft_supervisor_notify("READY=1"));
    ck_assert_int_eq(ft_supervisor_watchdog_ns(), 0);
    ck_assert(!ft_supervisor_has_journal());
}
END_TEST

START_TEST(notify_arrives_as_it_was_written) {
    listen_as_systemd();
    if (!can_open())
        return;
    ck_assert(ft_supervisor_notify("READY=1\nSTATUS=serving on %s", "x"));
    ck_assert_str_eq(heard(), "READY=1\nSTATUS=serving on x");
    ck_assert(ft_supervisor_notify_reloading());
    ck_assert_int_eq(strncmp(heard(), "RELOADING=1\nMONOTONIC_USEC=", 27), 0);
    stop_listening();
    ck_assert(!ft_supervisor_notify("READY=1")); /* nobody there: the caller can say so */
}
END_TEST

/* Fed by the loop: three times within the limit while it turns, not at all while it does not. */
START_TEST(watchdog_is_fed_while_the_loop_turns) {
    struct ft_rpc_loop *loop = NULL;
    struct ft_rpc_watchdog watchdog = {0};
    struct ft_err err = {0};
    char pid[16], byte;
    listen_as_systemd();
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("WATCHDOG_PID", pid, 1);
    setenv("WATCHDOG_USEC", "300000", 1);
    if (!can_open())
        return;
    ck_assert_int_eq(ft_supervisor_watchdog_ns(), 300000000);
    ck_assert_int_eq(ft_rpc_loop_create(&loop, 0, &err), FT_OK);
    ck_assert_int_eq(ft_rpc_watchdog_open(&watchdog, loop, &err), FT_OK);
    int64_t begin_ns = ft_clock_now_ns();
    for (int i = 0; i < 4; i++) {
        ft_rpc_loop_step(loop, ft_clock_now_ns() + 1000000000);
        ck_assert_str_eq(heard(), "WATCHDOG=1");
    }
    ck_assert_int_ge(ft_clock_now_ns() - begin_ns, 290000000); /* one at once, then each 100 ms */
    usleep(250000);                                            /* the loop hangs */
    ck_assert_int_lt(recv(g_socket, &byte, 1, MSG_DONTWAIT), 0);
    ft_rpc_watchdog_close(&watchdog);
    ft_rpc_loop_destroy(&loop);
    stop_listening();
}
END_TEST

START_TEST(watchdog_of_another_process_is_not_ours) {
    listen_as_systemd();
    setenv("WATCHDOG_PID", "1", 1);
    setenv("WATCHDOG_USEC", "300000", 1);
    if (!can_open())
        return;
    ck_assert_int_eq(ft_supervisor_watchdog_ns(), 0);
    stop_listening();
}
END_TEST

/* JOURNAL_STREAM is inherited; standard error may have been sent elsewhere since. */
START_TEST(journal_is_used_only_where_standard_error_is_it) {
    struct stat st;
    char stream[64];
    ck_assert_int_eq(fstat(STDERR_FILENO, &st), 0);
    snprintf(stream, sizeof stream, "JOURNAL_STREAM=%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino + 1);
    char *other[] = {stream, NULL};
    ck_assert_str_eq(ft_supervisor_open(other), "");
    ck_assert(!ft_supervisor_has_journal());
    snprintf(stream, sizeof stream, "JOURNAL_STREAM=%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    if (*ft_supervisor_open(other) == 0)
        ck_assert(ft_supervisor_has_journal());
}
END_TEST

static const struct {
    const char *line, *fields;
} k_lines[] = {
    {"stopped", "event=stopped;"},
    {"serving listen 127.0.0.1:1 rule standard", "event=serving;listen=127.0.0.1:1;rule=standard;"},
    {"ready backend \"avx512, 2 threads\" kv_blocks 3",
     "event=ready;backend=avx512, 2 threads;kv_blocks=3;"},
    {"worker-down role draft reason no reply within 5 ms",
     "event=worker-down;role=draft;reason=no reply within 5 ms;"},
    {"failed reason \"a b\" then 1", "event=failed;reason=a b;then=1;"},
    {"x key", "event=x;"},
    {"x 1 2", "event=x;"},
    {"x a \"open", "event=x;a=\"open;"},
    {"", ""},
};

START_TEST(fields_of_a_line_are_its_pairs) {
    struct ft_log_field fields[8];
    char text[256] = "";
    size_t n = ft_log_fields(ft_str_c(k_lines[_i].line), fields, 8);
    for (size_t i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%.*s=%.*s;",
                 (int)fields[i].key.len, fields[i].key.ptr, (int)fields[i].value.len,
                 fields[i].value.ptr);
    ck_assert_str_eq(text, k_lines[_i].fields);
}
END_TEST

START_TEST(fields_stop_at_the_bound) {
    struct ft_log_field fields[2];
    ck_assert_uint_eq(ft_log_fields(ft_str_c("e a 1 b 2 c 3"), fields, 2), 2);
    ck_assert_uint_eq(ft_log_fields(ft_str_c("e a 1"), fields, 0), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("supervisor");
    TCase *tcase = tcase_create("supervisor");
    tcase_add_test(tcase, notify_without_a_supervisor_does_nothing);
    tcase_add_test(tcase, notify_arrives_as_it_was_written);
    tcase_add_test(tcase, watchdog_is_fed_while_the_loop_turns);
    tcase_add_test(tcase, watchdog_of_another_process_is_not_ours);
    tcase_add_test(tcase, journal_is_used_only_where_standard_error_is_it);
    tcase_add_loop_test(tcase, fields_of_a_line_are_its_pairs, 0,
                        sizeof k_lines / sizeof k_lines[0]);
    tcase_add_test(tcase, fields_stop_at_the_bound);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
