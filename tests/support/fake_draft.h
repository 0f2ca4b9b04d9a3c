/* fake_draft: a draft worker that answers nonsense, on the socket of one that has died.
 * Owns:    server, region and thread, from start to stop.
 * Runs in: tests; on a thread and loop of its own.
 * Never:   says the same nonsense twice in a row. */
#ifndef TEST_FAKE_DRAFT_H
#define TEST_FAKE_DRAFT_H

#include "common/base/str.h"

struct fake_draft;

/* Serve on endpoint as the worker did whose DescribeResponse is describe. */
struct fake_draft *fake_draft_start(const char *endpoint, struct ft_str describe);
/* Returns how many steps it answered. */
int fake_draft_stop(struct fake_draft *fake);

#endif
