/* fake_draft: a draft worker that answers nonsense, on the socket of one that has died. It has a
 * process of its own: where two loops share one, gRPC has a thread do work of the other's loop.
 *
 * Owns:    the process (fake_draft_process.c), with server and region, from start to stop.
 * Runs in: tests; one thread.
 * Never:   says the same nonsense twice in a row. */
#ifndef TEST_FAKE_DRAFT_H
#define TEST_FAKE_DRAFT_H

#include "common/base/str.h"

struct fake_draft;

#define FAKE_DRAFT_READY "ready"
enum { FAKE_DRAFT_DESCRIBE_MAX = 65536 };

/* Serve on endpoint as the worker did whose DescribeResponse is describe. */
struct fake_draft *fake_draft_start(const char *endpoint, struct ft_str describe);
/* Returns how many steps it answered. */
int fake_draft_stop(struct fake_draft *fake);

#endif
