#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "coordinator/metrics.h"

#define P CO_METRICS_PREFIX

static void head(struct ft_buf *out, const char *name, const char *type, const char *help) {
    ft_buf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void add_value(struct ft_buf *out, double value) {
    if (value > -1e15 && value < 1e15 && value == (double)(int64_t)value)
        ft_buf_addf(out, "%" PRId64 "\n", (int64_t)value);
    else
        ft_buf_addf(out, "%.9g\n", value);
}

static void plain(struct ft_buf *out, const char *name, const char *type, const char *help,
                  double value) {
    head(out, name, type, help);
    ft_buf_addf(out, "%s ", name);
    add_value(out, value);
}

static void labelled(struct ft_buf *out, const char *name, const char *label, const char *of,
                     double value) {
    ft_buf_addf(out, "%s{%s=\"%s\"} ", name, label, of);
    add_value(out, value);
}

/* As the format wants it in a label. */
static void add_escaped(struct ft_buf *out, struct ft_str text) {
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        if (c == '\\' || c == '"')
            ft_buf_addf(out, "\\%c", c);
        else if (c == '\n')
            ft_buf_add_c(out, "\\n");
        else
            ft_buf_add(out, &c, 1);
    }
}

static void add_histogram(struct ft_buf *out, const char *name, const char *help,
                          const struct co_histogram *histogram,
                          const struct co_histogram_bounds *bounds) {
    uint64_t below = 0;
    head(out, name, "histogram", help);
    for (size_t i = 0; i < bounds->n; i++) {
        below += histogram->counts[i];
        ft_buf_addf(out, "%s_bucket{le=\"%.9g\"} %" PRIu64 "\n", name, bounds->at[i], below);
    }
    ft_buf_addf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.9g\n%s_count %" PRIu64 "\n",
                name, histogram->count, name, histogram->sum, name, histogram->count);
}

static double k_in_force(const struct co_app *app) {
    if (!app->config.speculation)
        return 0;
    if (app->drafting.policy.mode == CO_LENGTH_AUTO)
        return app->drafting.length.k_mean;
    return co_length_policy_k(&app->drafting.policy, app->n_running);
}

static void add_models(const struct co_app *app, const struct ft_wire_worker_stats *target,
                       const struct ft_wire_worker_stats *draft, struct ft_buf *out) {
    const struct co_peer *const peers[] = {app->target, app->draft};
    const struct ft_wire_worker_stats *const said[] = {target, draft};
    static const char *const names[] = {"target", "draft"};
#define MODEL(name, type, help, value)                                                             \
    head(out, P #name, type, help);                                                                \
    for (int i = 0; i < 2; i++) {                                                                  \
        const struct co_peer *peer = peers[i];                                                     \
        const struct ft_wire_worker_stats *w = said[i];                                            \
        (void)peer;                                                                                \
        (void)w;                                                                                   \
        if (i == 0 || app->draft != NULL)                                                          \
            labelled(out, P #name, "model", names[i], (double)(value));                            \
    }
#define MODEL_COUNTER(name, help, value) MODEL(name, "counter", help, value)
#define MODEL_GAUGE(name, help, value) MODEL(name, "gauge", help, value)
#define COUNTER(name, help, value)
#define GAUGE(name, help, value)
#include "coordinator/metrics.def"
#undef COUNTER
#undef GAUGE
#undef MODEL_COUNTER
#undef MODEL_GAUGE
}

static void add_plain(const struct co_app *app, struct ft_buf *out) {
    const struct co_stats *s = &app->stats;
#define COUNTER(name, help, value) plain(out, P #name, "counter", help, (double)(value));
#define GAUGE(name, help, value) plain(out, P #name, "gauge", help, (double)(value));
#define MODEL_COUNTER(name, help, value)
#define MODEL_GAUGE(name, help, value)
#include "coordinator/metrics.def"
#define X(id, name, bounds, help)                                                                  \
    add_histogram(out, P #name, help, &s->histograms[CO_HISTOGRAM_##id],                           \
                  co_stats_bounds(CO_HISTOGRAM_##id));
#include "coordinator/histograms.def"
#undef X
}

static void add_speculation(const struct co_app *app, struct ft_buf *out) {
    static const char per_pos[] = P "spec_decode_num_accepted_tokens_per_pos_total";
    static const char by_drafter[] = P "spec_decode_drafter_draft_tokens_total";
    static const char by_drafter_accepted[] = P "spec_decode_drafter_accepted_tokens_total";
    char text[16];
    head(out, per_pos, "counter", "Accepted drafted tokens by their position in the draft.");
    for (int i = 0; i < FT_DRAFT_LEN_MAX; i++) {
        snprintf(text, sizeof text, "%d", i);
        labelled(out, per_pos, "position", text, (double)app->stats.spec.accepted_per_pos[i]);
    }
    head(out, by_drafter, "counter", "Drafted tokens that were decided, by who drafted them.");
    for (size_t i = 0; co_drafter_at(i) != NULL; i++)
        labelled(out, by_drafter, "drafter", co_drafter_at(i)->name,
                 (double)app->drafting.counts[i].drafted);
    head(out, by_drafter_accepted, "counter", "Of those, accepted.");
    for (size_t i = 0; co_drafter_at(i) != NULL; i++)
        labelled(out, by_drafter_accepted, "drafter", co_drafter_at(i)->name,
                 (double)app->drafting.counts[i].accepted);
}

static void add_states(const struct co_app *app, struct ft_buf *out) {
    static const char success[] = P "request_success_total";
    static const char state[] = P "state";
    static const enum ft_wire_finish reasons[] = {FT_WIRE_FINISH_STOP, FT_WIRE_FINISH_LENGTH,
                                                  FT_WIRE_FINISH_TIME_LIMIT, FT_WIRE_FINISH_ABORT};
    head(out, success, "counter", "Requests that ended with OK.");
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        labelled(out, success, "finished_reason", ft_wire_finish_name(reasons[i]),
                 (double)app->stats.finished_by[reasons[i]]);
    head(out, state, "gauge", "1 for the state that the service is in.");
    for (int i = CO_READINESS_STARTING; i <= CO_READINESS_DRAINING; i++)
        labelled(out, state, "state", co_readiness_name((enum co_readiness_state)i),
                 app->readiness.state == (enum co_readiness_state)i);
    head(out, P "build_info", "gauge", "1; the labels say what is running.");
    ft_buf_add_c(out, P "build_info{version=\"" CO_VERSION "\",drafter=\"");
    add_escaped(out, ft_str_c(app->config.drafter));
    ft_buf_add_c(out, "\",rejection_sample_method=\"");
    add_escaped(out, ft_str_c(app->config.rejection_sample_method));
    ft_buf_add_c(out, "\",target=\"");
    if (app->target != NULL)
        add_escaped(out, co_peer_describe(app->target)->model_dir);
    ft_buf_add_c(out, "\",draft=\"");
    if (app->draft != NULL)
        add_escaped(out, co_peer_describe(app->draft)->model_dir);
    ft_buf_add_c(out, "\"} 1\n");
}

static double n_open_fds(void) {
    DIR *dir = opendir("/proc/self/fd");
    double n = -3; /* "." and "..", and the folder itself */
    while (dir != NULL && readdir(dir) != NULL)
        n++;
    if (dir != NULL)
        closedir(dir);
    return n > 0 ? n : 0;
}

static double n_max_fds(void) {
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? (double)limit.rlim_cur : 0;
}

static double resident_bytes(void) {
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long pages = 0;
    if (file != NULL && fscanf(file, "%*u %llu", &pages) != 1)
        pages = 0;
    if (file != NULL)
        fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* Named as every Prometheus client names them. */
static void add_process(const struct co_app *app, struct ft_buf *out) {
    double up = (double)(ft_clock_now_ns() - app->started_ns) * 1e-9;
    plain(out, "process_resident_memory_bytes", "gauge", "Resident memory of the coordinator.",
          resident_bytes());
    plain(out, "process_open_fds", "gauge", "File descriptors of the coordinator.", n_open_fds());
    plain(out, "process_max_fds", "gauge", "File descriptors that it may have at most.",
          n_max_fds());
    plain(out, "process_start_time_seconds", "gauge", "Start of the coordinator, Unix time.",
          (double)(int64_t)((double)ft_clock_unix_ms() * 1e-3 - up));
}

void co_metrics_render(const struct co_app *app, const struct ft_wire_worker_stats *target,
                       const struct ft_wire_worker_stats *draft, struct ft_buf *out) {
    add_plain(app, out);
    add_models(app, target, draft, out);
    add_speculation(app, out);
    add_states(app, out);
    add_process(app, out);
}
