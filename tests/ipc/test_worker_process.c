/* The worker programs from the outside: flags, exit statuses, signals, restarts. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "ipc/worker_client.h"
#include "ipc/worker_process.h"
#include "support/fixtures.h"
#include "support/awake.h"
#include "support/suite.h"

static const char *const k_roles[] = {"target", "draft"};
static const char *const k_small[] = {"--kv_cache_bytes=4Mi", "--num_threads=1", NULL};

static void expect_log(const struct worker_process *p, const char *text) {
    ck_assert_msg(strstr(p->log, text) != NULL, "no '%s' in: %s", text, p->log);
}

START_TEST(help_and_version_exit_0) {
    for (int i = 0; i < 2; i++) {
        struct worker_process p;
        worker_process_init(&p, k_roles[i]);
        ck_assert_int_eq(worker_process_start(&p, NULL, (const char *[]){"--help", NULL}), 0);
        expect_log(&p, "--kv_cache_bytes");
        expect_log(&p, "--max_num_seqs");
        ck_assert_int_eq(worker_process_start(&p, NULL, (const char *[]){"--version", NULL}), 0);
        expect_log(&p, "foretoken-");
        worker_process_end(&p);
    }
}
END_TEST

START_TEST(bad_flags_exit_78_with_one_line_that_names_them) {
    static const struct {
        const char *args[4];
        const char *text;
    } rows[] = {
        {{"--modle=x", NULL}, "unknown parameter 'modle'; the nearest known one is 'model'"},
        {{NULL}, "listen is not set"},
        {{"--listen=unix:/tmp/x", NULL}, "model is not set"},
        {{"--max_num_seqs=0", NULL}, "max_num_seqs is '0': must be 1 to 1024"},
        {{"--max_num_seqs=many", NULL}, "max_num_seqs is 'many'"},
        {{"--kv_cache_bytes=12Q", NULL},
         "kv_cache_bytes is '12Q': not a whole number, alone or with K, M, G, Ki, Mi or Gi"},
        {{"--log_level=loud", NULL}, "log_level is 'loud': must be one of"},
        {{"word", NULL}, "unexpected argument 'word'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct worker_process p;
        worker_process_init(&p, k_roles[i % 2]);
        ck_assert_int_eq(worker_process_start(&p, NULL, rows[i].args), 78);
        expect_log(&p, rows[i].text);
        ck_assert_ptr_eq(strchr(p.log, '\n'), p.log + strlen(p.log) - 1);
        worker_process_end(&p);
    }
}
END_TEST

START_TEST(dev13_dev28_bad_model_files_exit_78_with_file_and_reason) {
    const char *good = ft_fixture_model("r7");
    const char *dir = ft_fixture_temp_dir();
    struct worker_process p;
    worker_process_init(&p, "target");
    ck_assert_int_eq(worker_process_start(&p, "/nonexistent", k_small), 78);
    expect_log(&p, "/nonexistent");
    ck_assert_int_lt(p.ready_ms, 1000);

    ft_fixture_copy(good, dir);
    struct ft_buf weights = ft_fixture_read(dir, "model.safetensors");
    static const size_t cuts[] = {1, 2, 4095, 4096, 4097};
    for (size_t i = 0; i < 5; i++) {
        ft_fixture_write(dir, "model.safetensors", weights.ptr, weights.len - cuts[i]);
        ck_assert_int_eq(worker_process_start(&p, dir, k_small), 78);
        expect_log(&p, "model.safetensors");
        ck_assert_int_lt(p.ready_ms, 2000);
    }
    weights.ptr[7] = 0x7F; /* the header's length: near 2^63 */
    ft_fixture_write(dir, "model.safetensors", weights.ptr, weights.len);
    ck_assert_int_eq(worker_process_start(&p, dir, k_small), 78);
    weights.ptr[7] = 0;
    ft_fixture_write(dir, "model.safetensors", weights.ptr, weights.len);
    ft_fixture_write_text(dir, "tokenizer.json", "{");
    ck_assert_int_eq(worker_process_start(&p, dir, k_small), 78);
    expect_log(&p, "tokenizer.json");
    ft_buf_fini(&weights);
    worker_process_end(&p);
    ft_fixture_remove_dir(dir);
}
END_TEST

START_TEST(dev58_kv_that_does_not_fit_is_refused_at_start_with_both_sizes) {
    for (int i = 0; i < 2; i++) {
        struct worker_process p;
        worker_process_init(&p, k_roles[i]);
        ck_assert_int_eq(worker_process_start(&p, ft_fixture_model("r7"),
                                              (const char *[]){"--kv_cache_bytes=1000", NULL}),
                         78);
        expect_log(&p, "1000");
        expect_log(&p, "one block of 16 positions takes 16384");
        ck_assert_int_lt(p.ready_ms, 10000);
        /* One block is enough to start: what does not fit is refused step by step. */
        ck_assert_int_eq(worker_process_start(&p, ft_fixture_model("r7"),
                                              (const char *[]){"--kv_cache_bytes=16Ki", NULL}),
                         0);
        struct worker_client c;
        worker_client_open(&c, NULL, p.endpoint, k_roles[i]);
        worker_client_connect(&c);
        int32_t ids[17] = {97};
        struct ft_wire_seq_step s = {1, 0, ids, 17, .n_logits = 0};
        ck_assert_int_eq(worker_client_step(&c, &s, 1)->status, FT_WIRE_SEQ_NO_BLOCKS);
        s.n_tokens = 16;
        ck_assert_int_eq(worker_client_step(&c, &s, 1)->status, FT_WIRE_SEQ_OK);
        worker_client_close(&c);
        ck_assert_int_eq(worker_process_kill(&p, SIGTERM), 0);
        expect_log(&p, "kv-small");
        worker_process_end(&p);
    }
}
END_TEST

START_TEST(socket_of_a_live_worker_is_refused_and_left_alone) {
    struct worker_process p, second;
    worker_process_init(&p, "target");
    worker_process_init(&second, "target");
    ck_assert_int_eq(worker_process_start(&p, ft_fixture_model("cyc"), k_small), 0);
    struct stat st;
    ck_assert_int_eq(stat(p.endpoint + 5, &st), 0);
    ck_assert_int_eq((int)(st.st_mode & 0777), 0600);
    memcpy(second.endpoint, p.endpoint, sizeof p.endpoint);
    ck_assert_int_eq(worker_process_start(&second, ft_fixture_model("cyc"), k_small), 78);
    expect_log(&second, p.endpoint + 5);
    struct worker_client c;
    worker_client_open(&c, NULL, p.endpoint, "target");
    worker_client_connect(&c);
    worker_client_close(&c);
    snprintf(second.endpoint, sizeof second.endpoint, "unix:%s/no/such/folder/w.sock", second.dir);
    ck_assert_int_eq(worker_process_start(&second, ft_fixture_model("cyc"), k_small), 78);
    worker_process_end(&second);
    worker_process_end(&p);
}
END_TEST

START_TEST(dev62_sigterm_and_sigint_exit_0_at_once) {
    static const int signals[] = {SIGTERM, SIGINT};
    for (int i = 0; i < 4; i++) {
        struct worker_process p;
        worker_process_init(&p, k_roles[i % 2]);
        ck_assert_int_eq(worker_process_start(&p, ft_fixture_model("cyc"), k_small), 0);
        struct worker_client c;
        worker_client_open(&c, NULL, p.endpoint, k_roles[i % 2]);
        worker_client_connect(&c); /* with an open stream */
        ck_assert_int_eq(worker_process_kill(&p, signals[i / 2]), 0);
        ck_assert_int_lt(p.exit_ms, 2000);
        expect_log(&p, "stopped");
        worker_client_wait_stream_end(&c);
        worker_client_close(&c);
        worker_process_end(&p);
    }
}
END_TEST

START_TEST(dev62_sigterm_while_loading_exits_soon) {
    struct worker_process p;
    for (int delay_us = 0; delay_us < 40000; delay_us += 8000) {
        worker_process_init(&p, "target");
        char program[192], model[256], listen[224];
        snprintf(program, sizeof program, "%s/bin/foretoken-target", FT_TEST_BINARY_DIR);
        snprintf(model, sizeof model, "--model=%s", ft_fixture_model("r7"));
        snprintf(listen, sizeof listen, "--listen=%s", p.endpoint);
        /* The child has Check's handler until exec: no signal may come before it is gone. */
        sigset_t term, old;
        sigemptyset(&term);
        sigaddset(&term, SIGTERM);
        sigprocmask(SIG_BLOCK, &term, &old);
        pid_t pid = fork();
        if (pid == 0) {
            signal(SIGTERM, SIG_DFL);
            sigprocmask(SIG_SETMASK, &old, NULL);
            execl(program, program, model, listen, "--log_level=error", (char *)NULL);
            _exit(127);
        }
        sigprocmask(SIG_SETMASK, &old, NULL);
        usleep((useconds_t)delay_us);
        kill(pid, SIGTERM);
        int64_t begin_ns = ft_clock_now_ns();
        int status = 0;
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_int_lt((int)((ft_clock_now_ns() - begin_ns) / 1000000), 10000);
        ck_assert(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM));
        worker_process_end(&p);
    }
}
END_TEST

/* A coordinator that lives through the deaths of a worker. */
START_TEST(dev14_dev63_killed_worker_is_noticed_and_comes_back_as_another_epoch) {
    struct worker_process p;
    struct worker_client c;
    worker_process_init(&p, "target");
    ck_assert_int_eq(worker_process_start(&p, ft_fixture_model("cyc"), k_small), 0);
    worker_client_open(&c, NULL, p.endpoint, "target");
    uint64_t epoch = 0;
    int32_t ids[5] = {97, 98, 99, 100, 101};
    for (int i = 0; i < 10; i++) {
        worker_client_connect(&c);
        ck_assert_uint_ne(c.describe.epoch, epoch);
        epoch = c.describe.epoch;
        struct ft_wire_seq_step s = {1, 4, ids + 4, 1, .n_logits = 1};
        const struct ft_wire_seq_result *r = worker_client_step(&c, &s, 1);
        ck_assert_int_eq(r->status, FT_WIRE_SEQ_LOST);
        ck_assert_uint_eq(r->cached, 0);
        s = (struct ft_wire_seq_step){1, 0, ids, 5, .n_logits = 1};
        r = worker_client_step(&c, &s, 1);
        ck_assert_int_eq(r->status, FT_WIRE_SEQ_OK);
        ck_assert(worker_client_row(&c, r, 0)['a'] == 20.0f);
        ck_assert_int_eq(worker_process_kill(&p, SIGKILL), 128 + SIGKILL);
        int64_t begin_ns = ft_awake_ns();
        worker_client_wait_stream_end(&c);
        ck_assert_int_eq(c.stream_status.code, 14);
        ck_assert_int_lt((int)((ft_awake_ns() - begin_ns) / 1000000), 1000);
        ck_assert_int_eq(worker_process_start(&p, ft_fixture_model("cyc"), k_small), 0);
        ck_assert_int_lt(p.ready_ms, 10000);
    }
    worker_client_close(&c);
    ck_assert_int_eq(worker_process_kill(&p, SIGTERM), 0);
    worker_process_end(&p);
}
END_TEST

START_TEST(dev35_die_with_parent_leaves_no_orphan) {
    const char *model = ft_fixture_model("cyc");
    int fds[2];
    ck_assert_int_eq(pipe(fds), 0);
    pid_t parent = fork();
    if (parent == 0) { /* starts a worker, says its pid, and waits to be killed */
        struct worker_process p;
        worker_process_init(&p, "draft");
        if (worker_process_start(&p, model, k_small) != 0)
            _exit(1);
        if (write(fds[1], &p.pid, sizeof p.pid) != sizeof p.pid)
            _exit(2);
        pause();
        _exit(0);
    }
    pid_t worker = 0;
    close(fds[1]);
    ck_assert_int_eq(read(fds[0], &worker, sizeof worker), (int)sizeof worker);
    ck_assert_int_eq(kill(worker, 0), 0);
    kill(parent, SIGKILL);
    waitpid(parent, NULL, 0);
    int waited_ms = 0;
    char state = 0, path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)worker);
    for (; waited_ms < 10000; waited_ms += 10) {
        FILE *file = fopen(path, "re");
        if (file == NULL)
            break;
        if (fscanf(file, "%*d %*s %c", &state) != 1)
            state = 'X';
        fclose(file);
        if (state == 'Z') /* ended; whoever reaps it here is not our matter */
            break;
        usleep(10000);
    }
    ck_assert_int_lt(waited_ms, 10000);
    close(fds[0]);
}
END_TEST

START_TEST(garbage_on_the_socket_harms_nobody) {
    struct worker_process p;
    struct worker_client c;
    worker_process_init(&p, "draft");
    ck_assert_int_eq(worker_process_start(&p, ft_fixture_model("cyc"), k_small), 0);
    worker_client_open(&c, NULL, p.endpoint, "draft");
    worker_client_connect(&c);
    unsigned seed = 3;
    for (int round = 0; round < 20; round++) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        snprintf(address.sun_path, sizeof address.sun_path, "%.100s", p.endpoint + 5);
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
        char bytes[512];
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (char)rand_r(&seed);
        static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        if (round % 2 == 0)
            memcpy(bytes, preface, sizeof preface - 1);
        (void)!send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
        close(fd);
        int32_t ids[3] = {97, 98, 99};
        struct ft_wire_seq_step s = {1, 0, ids, 3, .draft_len = 4};
        const struct ft_wire_seq_result *r = worker_client_step(&c, &s, 1);
        ck_assert_int_eq(r->status, FT_WIRE_SEQ_OK);
        ck_assert_int_eq(r->draft_ids[0], 'd');
        ck_assert_int_eq(r->draft_ids[3], 'b');
    }
    worker_client_close(&c);
    ck_assert_int_eq(worker_process_kill(&p, SIGTERM), 0);
    worker_process_end(&p);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("worker_process");
    TCase *tc = tcase_create("worker_process");
    tcase_add_test(tc, help_and_version_exit_0);
    tcase_add_test(tc, bad_flags_exit_78_with_one_line_that_names_them);
    tcase_add_test(tc, dev13_dev28_bad_model_files_exit_78_with_file_and_reason);
    tcase_add_test(tc, dev58_kv_that_does_not_fit_is_refused_at_start_with_both_sizes);
    tcase_add_test(tc, socket_of_a_live_worker_is_refused_and_left_alone);
    tcase_add_test(tc, dev62_sigterm_and_sigint_exit_0_at_once);
    tcase_add_test(tc, dev62_sigterm_while_loading_exits_soon);
    tcase_add_test(tc, dev14_dev63_killed_worker_is_noticed_and_comes_back_as_another_epoch);
    tcase_add_test(tc, dev35_die_with_parent_leaves_no_orphan);
    tcase_add_test(tc, garbage_on_the_socket_harms_nobody);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
