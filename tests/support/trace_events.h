/* trace_events: what a viewer of the Trace Event Format asks of a file, as a check.
 * Owns:    the parsed file, from load to free.
 * Runs in: tests.
 * Never:   passes over an event that it does not know. */
#ifndef TEST_TRACE_EVENTS_H
#define TEST_TRACE_EVENTS_H

#include <jansson.h>

#include "common/base/str.h"

/* Parse text and check all of it: required members, times not negative and rising within a track,
 * events of a track apart or one within the other, every track named. Fails the test otherwise. */
json_t *trace_events_load(struct ft_str text);

/* How many spans have a name that begins so; the sum of the integer argument arg over them. */
int trace_events_count(const json_t *trace, const char *name);
long trace_events_sum(const json_t *trace, const char *name, const char *arg);

#endif
