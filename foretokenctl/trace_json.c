#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "foretokenctl/trace.h"

/* "Processes" of the trace, which group its tracks. */
enum { PID_COORDINATOR = 1, PID_DRAFT, PID_TARGET, PID_REQUESTS };
enum { TID_ROUNDS = 1, TID_MESSAGES };

struct track {
    int pid;
    size_t tid;
};

struct writer {
    struct ft_buf *out;
    uint64_t origin; /* ns */
    bool any;
};

static void begin_event(struct writer *w, const char *kind, struct track track) {
    ft_buf_addf(w->out, "%s{\"ph\":\"%s\",\"pid\":%d,\"tid\":%zu", w->any ? ",\n" : "", kind,
                track.pid, track.tid);
    w->any = true;
}

/* A name that the viewer shows: kind is process_name or thread_name. */
static void name_track(struct writer *w, const char *kind, struct track track, struct ft_str name) {
    begin_event(w, "M", track);
    ft_buf_addf(w->out, ",\"name\":\"%s\",\"args\":{\"name\":", kind);
    ft_buf_add_json(w->out, name);
    ft_buf_add_c(w->out, "}}");
    begin_event(w, "M", track);
    ft_buf_addf(w->out, ",\"name\":\"%s\",\"args\":{\"sort_index\":%zu}}",
                track.tid == 0 ? "process_sort_index" : "thread_sort_index",
                track.tid == 0 ? (size_t)track.pid : track.tid);
}

static double us(const struct writer *w, uint64_t ns) {
    return ns > w->origin ? (double)(ns - w->origin) * 1e-3 : 0;
}

/* Leaves the event open for arguments: end_event. name needs no escape. */
static void begin_span(struct writer *w, struct track track, const char *name, uint64_t from,
                       uint64_t to) {
    begin_event(w, "X", track);
    ft_buf_addf(w->out, ",\"name\":\"%s\",\"ts\":%.3f,\"dur\":%.3f", name, us(w, from),
                us(w, to > from ? to : from) - us(w, from));
}

static void end_event(struct writer *w) {
    ft_buf_add_c(w->out, "}");
}

static void span(struct writer *w, struct track track, const char *name, uint64_t from,
                 uint64_t to) {
    begin_span(w, track, name, from, to);
    end_event(w);
}

/* ---- rounds --------------------------------------------------------------------------------- */

/* A step that was sent and answered: there, computing, back; and what the worker did. */
static void add_step(struct writer *w, const char *name, const uint64_t at[4], int worker_pid) {
    const struct track rounds = {PID_COORDINATOR, TID_ROUNDS}, worker = {worker_pid, 1};
    span(w, rounds, name, at[0], at[3]);
    span(w, rounds, "hand-over", at[0], at[1]);
    span(w, rounds, "compute", at[1], at[2]);
    span(w, rounds, "hand-over", at[2], at[3]);
    span(w, worker, name, at[1], at[2]);
}

static void add_round(struct writer *w, const struct ft_wire_trace_round *round,
                      const uint64_t at[FT_TRACE_MOMENTS]) {
    const struct track rounds = {PID_COORDINATOR, TID_ROUNDS};
    const struct track messages = {PID_COORDINATOR, TID_MESSAGES};
    bool sent = round->at[FT_TRACE_DRAFT_SENT] != 0;
    bool answered = round->at[FT_TRACE_DRAFT_REPLY] != 0;
    uint64_t drafted = 0, accepted = 0, committed = 0, tokens = 0;
    for (size_t i = 0; i < round->n_seqs; i++) {
        tokens += round->seqs[i].tokens;
        drafted += round->seqs[i].drafted;
        accepted += round->seqs[i].accepted;
        committed += round->seqs[i].committed;
    }
    begin_span(w, rounds, "round", at[FT_TRACE_BEGIN], at[FT_TRACE_END]);
    ft_buf_addf(w->out,
                ",\"args\":{\"round\":%" PRIu64 ",\"requests\":%zu,\"positions\":%" PRIu64
                ",\"drafted\":%" PRIu64 ",\"accepted\":%" PRIu64 ",\"committed\":%" PRIu64 "}",
                round->round, round->n_seqs, tokens + drafted, drafted, accepted, committed);
    end_event(w);
    span(w, rounds, "propose", at[FT_TRACE_BEGIN],
         at[sent ? FT_TRACE_DRAFT_SENT : FT_TRACE_VERIFY_SENT]);
    if (sent && answered) {
        add_step(w, "draft", &at[FT_TRACE_DRAFT_SENT], PID_DRAFT);
        span(w, rounds, "plan", at[FT_TRACE_DRAFT_REPLY], at[FT_TRACE_VERIFY_SENT]);
    } else if (sent) {
        span(w, rounds, "draft lost", at[FT_TRACE_DRAFT_SENT], at[FT_TRACE_VERIFY_SENT]);
    }
    add_step(w, "verify", &at[FT_TRACE_VERIFY_SENT], PID_TARGET);
    span(w, rounds, "accept", at[FT_TRACE_VERIFY_REPLY], at[FT_TRACE_END]);
    if (round->at[FT_TRACE_WRITE_BEGIN] != 0)
        span(w, messages, "write", at[FT_TRACE_WRITE_BEGIN], at[FT_TRACE_WRITE_END]);
}

/* ---- requests ------------------------------------------------------------------------------- */

/* The request's track: requests count in the order in which they appear. seen [n_seen] ids. */
static size_t track_of(uint64_t seq_id, uint64_t *seen, size_t *n_seen) {
    for (size_t i = *n_seen; i > 0; i--) /* the latest are the likeliest */
        if (seen[i - 1] == seq_id)
            return i;
    seen[(*n_seen)++] = seq_id;
    return *n_seen;
}

static void add_request(struct writer *w, const struct ft_wire_trace_seq *seq, struct track track,
                        const uint64_t at[FT_TRACE_MOMENTS]) {
    char name[64];
    if (seq->model_drafted > 0 && at[FT_TRACE_DRAFT_REPLY] > at[FT_TRACE_DRAFT_SENT]) {
        snprintf(name, sizeof name, "draft %" PRIu32, seq->model_drafted);
        span(w, track, name, at[FT_TRACE_DRAFT_SENT], at[FT_TRACE_DRAFT_REPLY]);
    }
    if (seq->tokens > 1 || seq->committed == 0)
        snprintf(name, sizeof name, "prefill %" PRIu32, seq->tokens);
    else if (seq->drafted > 0)
        snprintf(name, sizeof name, "verify %" PRIu32, seq->drafted);
    else
        snprintf(name, sizeof name, "plain step");
    span(w, track, name, at[FT_TRACE_VERIFY_SENT], at[FT_TRACE_VERIFY_REPLY]);
    if (seq->drafted > 0)
        snprintf(name, sizeof name, "accept %" PRIu32 " of %" PRIu32, seq->accepted, seq->drafted);
    else
        snprintf(name, sizeof name, "accept");
    uint64_t floor = at[FT_TRACE_VERIFY_REPLY], ceiling = at[FT_TRACE_END];
    uint64_t begin = seq->accept_begin, end = seq->accept_end;
    begin = begin < floor ? floor : begin > ceiling ? ceiling : begin;
    end = end < begin ? begin : end > ceiling ? ceiling : end;
    begin_span(w, track, name, begin, end);
    ft_buf_addf(w->out, ",\"args\":{\"committed\":%" PRIu32 "}", seq->committed);
    end_event(w);
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Moments as they may be drawn: none before the one before it, and the first not before floor. */
static void order(const struct ft_wire_trace_round *round, uint64_t floor,
                  uint64_t at[FT_TRACE_MOMENTS]) {
    for (int i = 0; i < FT_TRACE_MOMENTS; i++) {
        at[i] = round->at[i] > floor ? round->at[i] : floor;
        floor = at[i];
    }
}

static void name_tracks(struct writer *w) {
    static const struct {
        struct track track;
        const char *name;
    } names[] = {
        {{PID_COORDINATOR, 0}, "coordinator"},
        {{PID_COORDINATOR, TID_ROUNDS}, "rounds"},
        {{PID_COORDINATOR, TID_MESSAGES}, "messages"},
        {{PID_DRAFT, 0}, "draft worker"},
        {{PID_DRAFT, 1}, "steps"},
        {{PID_TARGET, 0}, "target worker"},
        {{PID_TARGET, 1}, "steps"},
        {{PID_REQUESTS, 0}, "requests"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        name_track(w, names[i].track.tid == 0 ? "process_name" : "thread_name", names[i].track,
                   ft_str_c(names[i].name));
}

/* Rounds follow each other; what is written of one lies within the next, so that its moments do
 * not hold the next one up. */
static void add_rounds(struct writer *w, const struct ft_wire_trace *trace, uint64_t *seen) {
    size_t n_seen = 0;
    uint64_t floor = 0, written = 0, at[FT_TRACE_MOMENTS];
    for (size_t i = 0; i < trace->n_rounds; i++) {
        const struct ft_wire_trace_round *round = &trace->rounds[i];
        order(round, floor, at);
        floor = at[FT_TRACE_END];
        if (at[FT_TRACE_WRITE_BEGIN] < written)
            at[FT_TRACE_WRITE_BEGIN] = written;
        if (at[FT_TRACE_WRITE_END] < at[FT_TRACE_WRITE_BEGIN])
            at[FT_TRACE_WRITE_END] = at[FT_TRACE_WRITE_BEGIN];
        written = at[FT_TRACE_WRITE_END];
        add_round(w, round, at);
        for (size_t j = 0; j < round->n_seqs; j++) {
            size_t n_before = n_seen;
            struct track track = {PID_REQUESTS, track_of(round->seqs[j].seq_id, seen, &n_seen)};
            if (n_seen > n_before)
                name_track(w, "thread_name", track, round->seqs[j].request_id);
            add_request(w, &round->seqs[j], track, at);
        }
    }
}

void ctl_trace_json(const struct ft_wire_trace *trace, struct ft_buf *out) {
    struct writer w = {.out = out};
    size_t n_seqs = 0;
    for (size_t i = 0; i < trace->n_rounds; i++)
        n_seqs += trace->rounds[i].n_seqs;
    uint64_t *seen = calloc(n_seqs + 1, sizeof *seen);
    if (seen == NULL) {
        out->failed = true;
        return;
    }
    if (trace->n_rounds > 0)
        w.origin = trace->rounds[0].at[FT_TRACE_BEGIN];
    ft_buf_addf(out, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"rounds_total\":%" PRIu64 "},\n",
                trace->rounds_total);
    ft_buf_add_c(out, "\"traceEvents\":[\n");
    name_tracks(&w);
    add_rounds(&w, trace, seen);
    ft_buf_add_c(out, "\n]}\n");
    free(seen);
}
