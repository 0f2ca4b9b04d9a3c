#include "support/trace_events.h"

#include <check.h>
#include <string.h>

enum { TRACKS_MAX = 512, DEPTH_MAX = 8 };

struct track {
    json_int_t pid, tid;
    bool has_spans, is_named;
    double last_ts;
    double open_until[DEPTH_MAX]; /* ends of the spans that the next one may lie in */
    int depth;
};

static struct track g_tracks[TRACKS_MAX];
static int g_n_tracks;

static struct track *track_of(json_int_t pid, json_int_t tid) {
    for (int i = 0; i < g_n_tracks; i++)
        if (g_tracks[i].pid == pid && g_tracks[i].tid == tid)
            return &g_tracks[i];
    ck_assert_int_lt(g_n_tracks, TRACKS_MAX);
    g_tracks[g_n_tracks] = (struct track){.pid = pid, .tid = tid};
    return &g_tracks[g_n_tracks++];
}

static void check_name(const json_t *event, struct track *track) {
    const char *kind = json_string_value(json_object_get(event, "name"));
    const json_t *args = json_object_get(event, "args");
    ck_assert(json_is_object(args));
    if (strcmp(kind, "process_name") == 0 || strcmp(kind, "thread_name") == 0) {
        ck_assert(json_is_string(json_object_get(args, "name")));
        track->is_named = true;
    } else {
        ck_assert_msg(strcmp(kind, "process_sort_index") == 0 ||
                          strcmp(kind, "thread_sort_index") == 0,
                      "metadata '%s'", kind);
        ck_assert(json_is_integer(json_object_get(args, "sort_index")));
    }
}

/* Times are printed with three decimals: two that are equal may differ by their rounding. */
static const double SLACK = 0.0021;

static void check_span(const json_t *event, struct track *track) {
    const char *name = json_string_value(json_object_get(event, "name"));
    ck_assert(json_is_number(json_object_get(event, "ts")));
    ck_assert(json_is_number(json_object_get(event, "dur")));
    double ts = json_number_value(json_object_get(event, "ts"));
    double end = ts + json_number_value(json_object_get(event, "dur"));
    ck_assert_msg(ts >= 0 && end >= ts, "%s: %g .. %g", name, ts, end);
    ck_assert_msg(ts >= track->last_ts - SLACK, "%s at %.3f after one at %.3f", name, ts,
                  track->last_ts);
    track->last_ts = ts;
    track->has_spans = true;
    while (track->depth > 0 && track->open_until[track->depth - 1] <= ts + SLACK)
        track->depth--;
    if (track->depth > 0)
        ck_assert_msg(end <= track->open_until[track->depth - 1] + SLACK,
                      "%s ends at %.3f, in a span that ends at %.3f", name, end,
                      track->open_until[track->depth - 1]);
    ck_assert_int_lt(track->depth, DEPTH_MAX);
    track->open_until[track->depth++] = end;
}

json_t *trace_events_load(struct ft_str text) {
    json_error_t error;
    json_t *trace = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(trace != NULL, "line %d: %s", error.line, error.text);
    const json_t *events = json_object_get(trace, "traceEvents"), *event;
    ck_assert(json_is_array(events));
    size_t i;
    g_n_tracks = 0;
    json_array_foreach(events, i, event) {
        const char *kind = json_string_value(json_object_get(event, "ph"));
        const json_t *pid = json_object_get(event, "pid"), *tid = json_object_get(event, "tid");
        ck_assert(json_is_string(json_object_get(event, "name")));
        ck_assert(kind != NULL && json_is_integer(pid) && json_is_integer(tid));
        struct track *track = track_of(json_integer_value(pid), json_integer_value(tid));
        if (strcmp(kind, "M") == 0)
            check_name(event, track);
        else if (strcmp(kind, "X") == 0)
            check_span(event, track);
        else
            ck_abort_msg("an event of kind '%s'", kind);
    }
    for (int t = 0; t < g_n_tracks; t++)
        ck_assert_msg(g_tracks[t].is_named || !g_tracks[t].has_spans, "track %d/%d has no name",
                      (int)g_tracks[t].pid, (int)g_tracks[t].tid);
    return trace;
}

static bool matches(const json_t *event, const char *name) {
    const char *kind = json_string_value(json_object_get(event, "ph"));
    const char *its = json_string_value(json_object_get(event, "name"));
    return strcmp(kind, "X") == 0 && strncmp(its, name, strlen(name)) == 0;
}

int trace_events_count(const json_t *trace, const char *name) {
    const json_t *event;
    size_t i;
    int n = 0;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event) n += matches(event, name);
    return n;
}

long trace_events_sum(const json_t *trace, const char *name, const char *arg) {
    const json_t *event;
    size_t i;
    long sum = 0;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event) if (matches(event, name))
        sum += (long)json_integer_value(json_object_get(json_object_get(event, "args"), arg));
    return sum;
}
