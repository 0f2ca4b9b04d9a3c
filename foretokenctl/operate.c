/* operate (ctl): what an operator asks and does: health, drain, resume, requests, cancel, set and
 * draft reload. */
#include "common/wire/operate.h"

#include <inttypes.h>
#include <stddef.h>

#include "common/wire/admin.h"
#include "foretokenctl/commands.h"
#include "foretokenctl/exit.h"
#include "foretokenctl/fields.h"
#include "foretokenctl/session.h"

#define METHOD(name) FT_WIRE_ADMIN_SERVICE name
#define N_OF(array) (sizeof(array) / sizeof(array)[0])

/* ---- health, drain, resume ------------------------------------------------------------------- */

#define HEALTH(kind, name)                                                                         \
    { #name, kind, offsetof(struct ft_wire_service_health, name) }
static const struct ctl_field health_fields[] = {
    HEALTH(CTL_STR, state),
    HEALTH(CTL_STR, reason),
    HEALTH(CTL_F64, state_seconds),
    HEALTH(CTL_U32, num_requests_running),
    HEALTH(CTL_U32, num_requests_waiting),
    HEALTH(CTL_BOOL, target_up),
    HEALTH(CTL_STR, target_trouble),
    HEALTH(CTL_BOOL, has_draft),
    HEALTH(CTL_BOOL, draft_up),
    HEALTH(CTL_STR, draft_trouble),
};

static int decode_health(struct ctl_session *session, struct ft_wire_service_health *health) {
    struct ft_err err = {0};
    if (ft_wire_decode_service_health(ft_buf_str(&session->reply), session->arena, health, &err) !=
        FT_OK)
        return ctl_exit_because(CTL_EXIT_PROTOCOL, err.text);
    return CTL_EXIT_OK;
}

static void add_worker(struct ft_buf *out, const char *name, bool up, struct ft_str trouble) {
    ft_buf_addf(out, "%s %s", name, up ? "up" : "down");
    if (!up && trouble.len > 0) {
        ft_buf_add_c(out, " (");
        ctl_print_escape(out, trouble, true);
        ft_buf_add_c(out, ")");
    }
}

static int show_health(struct ctl_session *session, bool json, struct ft_buf *out) {
    struct ft_wire_service_health health;
    int status = decode_health(session, &health);
    if (status != CTL_EXIT_OK)
        return status;
    if (json) {
        ft_buf_add_c(out, "{");
        ctl_fields_json(out, health_fields, N_OF(health_fields), &health);
        ft_buf_add_c(out, "}\n");
        return CTL_EXIT_OK;
    }
    ctl_print_escape(out, health.state, true);
    if (health.reason.len > 0) {
        ft_buf_add_c(out, ": ");
        ctl_print_escape(out, health.reason, true);
    }
    ft_buf_addf(out, "\n%" PRIu32 " running, %" PRIu32 " waiting, ", health.num_requests_running,
                health.num_requests_waiting);
    add_worker(out, "target", health.target_up, health.target_trouble);
    if (health.has_draft) {
        ft_buf_add_c(out, ", ");
        add_worker(out, "draft", health.draft_up, health.draft_trouble);
    }
    ft_buf_add_c(out, "\n");
    return CTL_EXIT_OK;
}

/* Not ready is an answer and an exit status of its own. */
static int show_readiness(struct ctl_session *session, bool json, struct ft_buf *out) {
    struct ft_wire_service_health health;
    int status = show_health(session, json, out);
    if (status == CTL_EXIT_OK)
        status = decode_health(session, &health);
    if (status == CTL_EXIT_OK && !ft_str_eq(health.state, ft_str_c("ready")))
        status = CTL_EXIT_UNAVAILABLE;
    return status;
}

static void fill_drain(const struct ctl_options *opts, struct ft_buf *message) {
    ft_wire_encode_drain(opts->reason, message);
}

int ctl_health_run(struct ctl_options *opts) {
    return ctl_session_show(opts, METHOD("GetHealth"), NULL, show_readiness);
}

int ctl_drain_run(struct ctl_options *opts) {
    return ctl_session_show(opts, METHOD("Drain"), fill_drain, show_health);
}

int ctl_resume_run(struct ctl_options *opts) {
    return ctl_session_show(opts, METHOD("Resume"), NULL, show_health);
}

/* ---- requests, cancel ------------------------------------------------------------------------ */

#define INFO(kind, name)                                                                           \
    { #name, kind, offsetof(struct ft_wire_request_info, name) }
static const struct ctl_field info_fields[] = {
    INFO(CTL_STR, request_id),
    INFO(CTL_U32, index),
    INFO(CTL_STR, state),
    INFO(CTL_F64, age_seconds),
    INFO(CTL_U32, prompt_tokens),
    INFO(CTL_U32, output_tokens),
    INFO(CTL_U32, max_tokens),
    INFO(CTL_U32, num_speculative_tokens),
    INFO(CTL_STR, drafter),
    INFO(CTL_STR, rejection_sample_method),
    INFO(CTL_U64, num_draft_tokens),
    INFO(CTL_U64, num_accepted_tokens),
    INFO(CTL_STR, client),
    INFO(CTL_STR, fallback_reason),
};

/* Padded to width, never cut: an id that is cut cannot be cancelled. */
static void add_cell(struct ft_buf *out, struct ft_str text, size_t width) {
    size_t begin = out->len;
    ctl_print_escape(out, text, true);
    while (!out->failed && out->len - begin < width)
        ft_buf_add_c(out, " ");
    ft_buf_add_c(out, " ");
}

static void add_age(struct ft_buf *out, double seconds) {
    if (seconds < 100)
        ft_buf_addf(out, "%5.1fs ", seconds);
    else if (seconds < 100 * 60.0)
        ft_buf_addf(out, "%5.0fm ", seconds / 60);
    else
        ft_buf_addf(out, "%5.0fh ", seconds / 3600);
}

static void add_row(struct ft_buf *out, const struct ft_wire_request_info *r, size_t id_width) {
    add_cell(out, r->request_id, id_width);
    add_cell(out, r->state, 10);
    add_age(out, r->age_seconds);
    ft_buf_addf(out, "%6" PRIu32 " %6" PRIu32 " %2" PRIu32 " ", r->prompt_tokens, r->output_tokens,
                r->num_speculative_tokens);
    add_cell(out, r->num_speculative_tokens > 0 ? r->drafter : ft_str_c("-"), 7);
    if (r->num_draft_tokens > 0)
        ft_buf_addf(out, "%5.1f%% ",
                    100 * (double)r->num_accepted_tokens / (double)r->num_draft_tokens);
    else
        ft_buf_add_c(out, "     - ");
    ctl_print_escape(out, r->client, true);
    ft_buf_add_c(out, "\n");
}

static void add_table(struct ft_buf *out, const struct ft_wire_request_info *list, size_t n) {
    size_t id_width = 20;
    for (size_t i = 0; i < n; i++)
        id_width = list[i].request_id.len > id_width ? list[i].request_id.len : id_width;
    ft_buf_addf(out, "%-*s STATE        AGE  PROMPT OUTPUT  K DRAFTER ACCEPT CLIENT\n",
                (int)id_width, "ID");
    for (size_t i = 0; i < n; i++)
        add_row(out, &list[i], id_width);
}

static int show_requests(struct ctl_session *session, bool json, struct ft_buf *out) {
    struct ft_wire_request_info *list;
    size_t n;
    struct ft_err err = {0};
    if (ft_wire_decode_requests(ft_buf_str(&session->reply), session->arena, &list, &n, &err) !=
        FT_OK)
        return ctl_exit_because(CTL_EXIT_PROTOCOL, err.text);
    if (!json) {
        if (n == 0)
            ft_buf_add_c(out, "no requests\n");
        else
            add_table(out, list, n);
        return CTL_EXIT_OK;
    }
    ft_buf_add_c(out, "{\"requests\":[");
    for (size_t i = 0; i < n; i++) {
        ft_buf_add_c(out, i == 0 ? "{" : ",{");
        ctl_fields_json(out, info_fields, N_OF(info_fields), &list[i]);
        ft_buf_addf(out, ",\"priority\":%" PRId32 "}", list[i].priority);
    }
    ft_buf_add_c(out, "]}\n");
    return CTL_EXIT_OK;
}

static void fill_cancel(const struct ctl_options *opts, struct ft_buf *message) {
    ft_wire_encode_cancel(opts->words[1], message);
}

static int show_cancelled(struct ctl_session *session, bool json, struct ft_buf *out) {
    uint32_t n;
    struct ft_err err = {0};
    if (ft_wire_decode_cancelled(ft_buf_str(&session->reply), session->arena, &n, &err) != FT_OK)
        return ctl_exit_because(CTL_EXIT_PROTOCOL, err.text);
    ft_buf_addf(out, json ? "{\"num_cancelled\":%" PRIu32 "}\n" : "cancelled %" PRIu32 "\n", n);
    return CTL_EXIT_OK;
}

int ctl_requests_run(struct ctl_options *opts) {
    return ctl_session_show(opts, METHOD("ListRequests"), NULL, show_requests);
}

int ctl_cancel_run(struct ctl_options *opts) {
    if (opts->n_words != 2)
        return ctl_exit_because(CTL_EXIT_USAGE, "cancel takes one request id");
    return ctl_session_show(opts, METHOD("CancelRequest"), fill_cancel, show_cancelled);
}

/* ---- set --------------------------------------------------------------------------------------*/

/* "NAME=VALUE", or the whole as a name. */
static struct ft_wire_parameter split(struct ft_str word) {
    for (size_t i = 0; i < word.len; i++)
        if (word.ptr[i] == '=')
            return (struct ft_wire_parameter){{word.ptr, i}, {word.ptr + i + 1, word.len - i - 1}};
    return (struct ft_wire_parameter){word, {NULL, 0}};
}

static bool has_value(struct ft_str word) {
    return memchr(word.ptr, '=', word.len) != NULL;
}

static void fill_set(const struct ctl_options *opts, struct ft_buf *message) {
    if (opts->n_words == 3 && !has_value(opts->words[1])) {
        ft_wire_encode_parameter(&(struct ft_wire_parameter){opts->words[1], opts->words[2]},
                                 message);
        return;
    }
    for (size_t i = 1; i < opts->n_words; i++) {
        struct ft_wire_parameter parameter = split(opts->words[i]);
        ft_wire_encode_parameter(&parameter, message);
    }
}

static int show_parameters(struct ctl_session *session, bool json, struct ft_buf *out) {
    struct ft_wire_parameter list[FT_WIRE_PARAMETERS_MAX];
    size_t n;
    struct ft_err err = {0};
    if (ft_wire_decode_parameters(ft_buf_str(&session->reply), session->arena, list, &n, &err) !=
        FT_OK)
        return ctl_exit_because(CTL_EXIT_PROTOCOL, err.text);
    if (json)
        ft_buf_add_c(out, "{");
    for (size_t i = 0; i < n; i++) {
        if (json) {
            ft_buf_add_c(out, i == 0 ? "" : ",");
            ft_buf_add_json(out, list[i].name);
            ft_buf_add_c(out, ":");
            ft_buf_add_json(out, list[i].value);
            continue;
        }
        add_cell(out, list[i].name, 31);
        ctl_print_escape(out, list[i].value, true);
        ft_buf_add_c(out, "\n");
    }
    if (json)
        ft_buf_add_c(out, "}\n");
    return CTL_EXIT_OK;
}

int ctl_set_run(struct ctl_options *opts) {
    bool pair = opts->n_words == 3 && !has_value(opts->words[1]);
    for (size_t i = 1; i < opts->n_words && !pair; i++)
        if (!has_value(opts->words[i]))
            return ctl_exit_because(CTL_EXIT_USAGE,
                                    "set takes NAME=VALUE..., or NAME VALUE, or nothing");
    return ctl_session_show(opts, METHOD("SetParameters"), fill_set, show_parameters);
}

/* ---- draft reload ---------------------------------------------------------------------------- */

static void fill_reload(const struct ctl_options *opts, struct ft_buf *message) {
    ft_wire_encode_reload_draft(opts->model_dir, message);
}

static int show_reloaded(struct ctl_session *session, bool json, struct ft_buf *out) {
    struct ft_wire_draft_reloaded done;
    struct ft_err err = {0};
    if (ft_wire_decode_draft_reloaded(ft_buf_str(&session->reply), session->arena, &done, &err) !=
        FT_OK)
        return ctl_exit_because(CTL_EXIT_PROTOCOL, err.text);
    if (json) {
        ft_buf_addf(out, "{\"epoch\":\"%016" PRIx64 "\",\"load_seconds\":", done.epoch);
        ctl_print_json_real(out, done.load_seconds);
        ft_buf_add_c(out, "}\n");
    } else {
        ft_buf_addf(out, "reloaded in %.3f s, epoch %016" PRIx64 "\n", done.load_seconds,
                    done.epoch);
    }
    return CTL_EXIT_OK;
}

int ctl_draft_run(struct ctl_options *opts) {
    if (opts->n_words != 2 || !ft_str_eq(opts->words[1], ft_str_c("reload")))
        return ctl_exit_because(CTL_EXIT_USAGE, "draft takes one word: reload");
    if (opts->model_dir.len == 0)
        return ctl_exit_because(CTL_EXIT_USAGE, "draft reload needs --model DIR");
    return ctl_session_show(opts, METHOD("ReloadDraft"), fill_reload, show_reloaded);
}
