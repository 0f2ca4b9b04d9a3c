#include <check.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/parent.h"
#include "support/suite.h"

/* The process whose end is looked at: no handler of Check's, and an end in any case. */
static void follow_and_wait(pid_t parent) {
    struct ft_err err = {0};
    signal(SIGTERM, SIG_DFL);
    alarm(60);
    if (ft_parent_follow(parent, &err) != FT_OK)
        _exit(1);
}

START_TEST(follow_of_a_parent_that_is_gone_already_ends_at_once) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        follow_and_wait(getppid() + 1); /* as it reads when another one has taken its place */
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "status 0x%x", status);
}
END_TEST

START_TEST(follow_ends_with_the_parent_and_not_before) {
    int fds[2];
    char byte;
    ck_assert_int_eq(pipe(fds), 0);
    pid_t parent = fork();
    if (parent == 0) {
        pid_t self = getpid();
        if (fork() == 0) {
            follow_and_wait(self);
            if (write(fds[1], "f", 1) != 1)
                _exit(1);
            for (;;)
                pause();
        }
        close(fds[1]);
        for (;;)
            pause();
    }
    close(fds[1]);
    ck_assert_int_eq(read(fds[0], &byte, 1), 1);
    struct pollfd end = {.fd = fds[0], .events = POLLIN};
    ck_assert_int_eq(poll(&end, 1, 50), 0);
    kill(parent, SIGKILL);
    ck_assert_int_eq(waitpid(parent, NULL, 0), parent);
    ck_assert_int_eq(poll(&end, 1, 20000), 1);
    ck_assert_int_eq(read(fds[0], &byte, 1), 0); /* nobody holds the other end */
    close(fds[0]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("parent");
    TCase *tc = tcase_create("parent");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, follow_of_a_parent_that_is_gone_already_ends_at_once);
    tcase_add_test(tc, follow_ends_with_the_parent_and_not_before);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
