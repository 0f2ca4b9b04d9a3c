/* worker_process: a real worker program for a test.
 * Owns:    the process and its run folder, from init to end.
 * Runs in: tests; one thread.
 * Never:   sleeps for readiness: the worker says "ready" on a pipe. */
#ifndef FT_TESTS_WORKER_PROCESS_H
#define FT_TESTS_WORKER_PROCESS_H

#include <sys/types.h>

enum { WORKER_ARGS_MAX = 12, WORKER_LOG_MAX = 16384 };

struct worker_process {
    const char *role; /* "target" or "draft" */
    const char *dir;
    char endpoint[192];
    pid_t pid;                /* 0: not running */
    int ready_ms, exit_ms;    /* of the last start, and of the last end */
    char log[WORKER_LOG_MAX]; /* read at each end */
};

void worker_process_init(struct worker_process *p, const char *role);
/* Start with --model and --listen before args (NULL-terminated; a NULL model gives neither).
 * Returns 0 when it said ready, else its exit status, 128 + signal. */
int worker_process_start(struct worker_process *p, const char *model, const char *const *args);
/* Send signo and wait for the end; returns the exit status, 128 + signal. */
int worker_process_kill(struct worker_process *p, int signo);
/* End what runs, and remove the folder. */
void worker_process_end(struct worker_process *p);

#endif
