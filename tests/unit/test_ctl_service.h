/* test_ctl_service: a service with canned answers, for tests of foretokenctl.
 * Owns:    loop, server and the folder of its socket, from open to close.
 * Runs in: tests; one thread.
 * Never:   answers but as the request's text says, see test_ctl_service.c. */
#ifndef FT_TEST_CTL_SERVICE_H
#define FT_TEST_CTL_SERVICE_H

#include "common/base/arena.h"
#include "common/rpc/rpc.h"
#include "common/wire/inference.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ctl_service {
    struct ft_rpc_loop *loop;
    struct ft_rpc_server *server;
    char dir[32], endpoint[64];
    struct ft_arena *arena;
    struct ft_wire_generate request; /* the last Generate; lives in the arena */
    int n_generate;                  /* Generate calls */
    int n_flaky;                     /* of them, still to be refused */
    int n_busy;                      /* the same, for load */
    struct ft_rpc_call *held;        /* waits for a release */
    bool released;
    int n_cancelled;       /* calls that went without a finish of ours */
    bool has_draft, quiet; /* quiet: counters are all 0 */
};

void ctl_service_open(struct ctl_service *service);
void ctl_service_close(struct ctl_service *service);

#ifdef __cplusplus
}
#endif
#endif
