/* test_ctl_run: runs foretokenctl against the service of test_ctl_service, and what it printed.
 * Owns:    the service, and both outputs of the last run; from ctl_run_set_up to ctl_run_tear_down.
 * Runs in: tests; one thread.
 * Never:   waits for ever: a run that does not end is killed and fails the test. */
#ifndef FT_TEST_CTL_RUN_H
#define FT_TEST_CTL_RUN_H

#include <check.h>
#include <jansson.h>

#include "unit/test_ctl_service.h"

#ifdef __cplusplus
extern "C" {
#endif

extern struct ctl_service service;
extern struct ft_buf out, err_out;

/* How a run of foretokenctl differs from the plain one. */
struct run {
    const char *endpoint; /* NULL: the service's; "": no --endpoint */
    const char *variable; /* FORETOKEN_ENDPOINT */
    const char *setting;  /* NAME=VALUE of the environment */
    const char *input;    /* of standard input, a path */
    int signo;            /* sent once something was printed */
    int signo_err;        /* the same, on standard error */
    int signo_late;       /* sent a moment after the start, whatever was printed */
    bool terminal;        /* standard output is one */
    bool close_early;     /* standard output is closed once something was printed */
    const char *output;   /* standard output is this file */
};

void ctl_run_set_up(void);
void ctl_run_tear_down(void);

/* Exit status, or -N when signal N killed it. */
int run_with(struct run run, const char *const *args);
/* Serve until n calls were cancelled, at most as long as a run may take: how soon the service hears
   of a client that is gone depends on the machine's load. */
void await_cancelled(int n);

/* Standard output, which must be one line of JSON; the caller calls json_decref. */
json_t *parse_output(void);
/* Members that must be there. */
double number(const json_t *object, const char *key);
const char *text_of(const json_t *object, const char *key);

#define ARGS(...) ((const char *[]){__VA_ARGS__, NULL})
#define RUN(...) run_with((struct run){0}, ARGS(__VA_ARGS__))
#define CHECK_OUT(literal)                                                                         \
    do {                                                                                           \
        ck_assert_msg(ft_str_eq(ft_buf_str(&out), (struct ft_str){literal, sizeof literal - 1}),   \
                      "%s", out.ptr);                                                              \
    } while (0)
#define CHECK_ERR(text) ck_assert_msg(strstr(err_out.ptr, text) != NULL, "%s", err_out.ptr)

#ifdef __cplusplus
}
#endif
#endif
