#include <inttypes.h>
#include <unistd.h>

#include "foretokenctl/commands.h"
#include "foretokenctl/exit.h"
#include "foretokenctl/fields.h"
#include "foretokenctl/input.h"
#include "foretokenctl/session.h"

struct generation {
    struct ctl_session *session;
    const struct ctl_options *opts;
    struct ft_buf ids; /* int32_t, for --json */
    struct ft_buf text;
    struct ft_buf request_id;
    struct ft_wire_generated last; /* the message with a finish reason, once it has come */
    struct ft_rpc_status status;
    struct ft_err err; /* what made us cancel: a message that is none, or a closed output */
    char last_byte;    /* of the text */
};

static void stop_because(struct generation *gen) {
    if (gen->session->stream != NULL)
        ft_rpc_stream_cancel(gen->session->stream);
}

static void show_text(struct generation *gen, struct ft_str text) {
    if (text.len == 0)
        return;
    gen->last_byte = text.ptr[text.len - 1];
    ctl_print_text(stdout, text);
    if (ctl_print_flush(stdout, &gen->err) != FT_OK)
        stop_because(gen);
}

static void on_message(void *user, struct ft_str bytes) {
    struct generation *gen = user;
    struct ft_wire_generated message;
    if (gen->err.code != FT_OK)
        return;
    if (gen->last.finish == FT_WIRE_FINISH_NONE) /* the last message stays for the statistics */
        ft_arena_reset(gen->session->arena);
    if (ft_wire_decode_generated(bytes, gen->session->arena, &message, &gen->err) != FT_OK) {
        gen->err.code = FT_E_PEER_PROTOCOL;
        stop_because(gen);
        return;
    }
    ft_buf_add_str(&gen->request_id, message.request_id);
    if (message.finish != FT_WIRE_FINISH_NONE)
        gen->last = message;
    if (!gen->opts->json) {
        show_text(gen, message.text);
        return;
    }
    ft_buf_add(&gen->ids, message.token_ids, message.n_token_ids * sizeof *message.token_ids);
    ft_buf_add_str(&gen->text, message.text);
}

static void on_done(void *user, const struct ft_rpc_status *status) {
    struct generation *gen = user;
    gen->status = *status;
    gen->session->stream = NULL;
    ft_rpc_loop_stop(gen->session->loop);
}

static const struct ft_rpc_stream_handlers handlers = {.on_message = on_message,
                                                       .on_done = on_done};

/* ---- the end -------------------------------------------------------------------------------- */

#define USAGE(kind, name)                                                                          \
    { #name, kind, offsetof(struct ft_wire_usage, name) }
static const struct ctl_field usage_fields[] = {
    USAGE(CTL_U32, prompt_tokens),       USAGE(CTL_U32, completion_tokens),
    USAGE(CTL_U32, cached_tokens),       USAGE(CTL_F64, queue_seconds),
    USAGE(CTL_F64, first_token_seconds), USAGE(CTL_F64, total_seconds),
};
#define SPEC(kind, name)                                                                           \
    { #name, kind, offsetof(struct ft_wire_spec_stats, name) }
static const struct ctl_field spec_fields[] = {
    SPEC(CTL_U64, num_drafts),          SPEC(CTL_U64, num_draft_tokens),
    SPEC(CTL_U64, num_accepted_tokens), SPEC(CTL_U64, num_target_steps),
    SPEC(CTL_U64, num_plain_steps),     SPEC(CTL_BOOL, lossy),
    SPEC(CTL_STR, fallback_reason),
};
#define N_OF(array) (sizeof(array) / sizeof(array)[0])

static double acceptance_rate(const struct ft_wire_spec_stats *s) {
    return ctl_print_ratio((double)s->num_accepted_tokens, (double)s->num_draft_tokens);
}

/* The token that the target adds to each draft included; 0 when nothing was drafted. */
static double mean_acceptance_length(const struct ft_wire_spec_stats *s) {
    return s->num_drafts == 0 ? 0 : 1 + (double)s->num_accepted_tokens / (double)s->num_drafts;
}

static void add_speculation(struct ft_buf *out, const struct ft_wire_spec_stats *s) {
    ft_buf_add_c(out, "{");
    ctl_fields_json(out, spec_fields, N_OF(spec_fields), s);
    ft_buf_add_c(out, ",\"acceptance_rate\":");
    ctl_print_json_real(out, acceptance_rate(s));
    ft_buf_add_c(out, ",\"mean_acceptance_length\":");
    ctl_print_json_real(out, mean_acceptance_length(s));
    ft_buf_add_c(out, ",\"num_accepted_tokens_per_pos\":");
    ctl_print_json_counts(out, s->accepted_per_pos, s->n_pos);
    ft_buf_add_c(out, ",\"num_draft_tokens_per_pos\":");
    ctl_print_json_counts(out, s->drafted_per_pos, s->n_pos);
    ft_buf_add_c(out, "}");
}

static void add_matched_stop(struct ft_buf *out, const struct ft_wire_generated *last) {
    if (last->has_matched_token)
        ft_buf_addf(out, "%" PRId32, last->matched_token_id);
    else if (last->has_matched_str)
        ft_buf_add_json(out, last->matched_stop_str);
    else
        ft_buf_add_c(out, "null");
}

static int print_json(const struct generation *gen) {
    const struct ft_wire_generated *last = &gen->last;
    struct ft_buf out;
    ft_buf_init(&out, 0);
    ft_buf_add_c(&out, "{\"request_id\":");
    ft_buf_add_json(&out, ft_buf_str(&gen->request_id));
    ft_buf_add_c(&out, ",\"token_ids\":");
    ctl_print_json_ids(&out, (const int32_t *)(const void *)gen->ids.ptr,
                       gen->ids.len / sizeof(int32_t));
    ft_buf_add_c(&out, ",\"text\":");
    ft_buf_add_json(&out, ft_buf_str(&gen->text));
    ft_buf_addf(&out,
                ",\"finish_reason\":\"%s\",\"matched_stop\":", ft_wire_finish_name(last->finish));
    add_matched_stop(&out, last);
    ft_buf_add_c(&out, ",\"usage\":{");
    ctl_fields_json(&out, usage_fields, N_OF(usage_fields), &last->usage);
    ft_buf_add_c(&out, "},\"speculation\":");
    add_speculation(&out, &last->speculative);
    ft_buf_add_c(&out, "}\n");
    int status = ctl_exit_with_output(&out);
    ft_buf_fini(&out);
    return status;
}

static void print_stats(const struct generation *gen) {
    const struct ft_wire_usage *u = &gen->last.usage;
    const struct ft_wire_spec_stats *s = &gen->last.speculative;
    double decode_s = u->total_seconds - u->first_token_seconds;
    double after_first = u->completion_tokens > 0 ? u->completion_tokens - 1.0 : 0;
    fprintf(stderr,
            "finish %s, prompt %" PRIu32 " tokens (%" PRIu32 " cached), output %" PRIu32
            " tokens, first after %.3f s, total %.3f s, %.1f tokens/s",
            ft_wire_finish_name(gen->last.finish), u->prompt_tokens, u->cached_tokens,
            u->completion_tokens, u->first_token_seconds, u->total_seconds,
            decode_s > 0 ? after_first / decode_s : 0);
    fprintf(stderr, ", %" PRIu64 " target steps", s->num_target_steps);
    if (s->num_drafts > 0)
        fprintf(stderr,
                ", accepted %" PRIu64 " of %" PRIu64 " drafted (%.1f %%), %.2f tokens a round%s",
                s->num_accepted_tokens, s->num_draft_tokens, 100 * acceptance_rate(s),
                mean_acceptance_length(s), s->lossy ? ", lossy" : "");
    else
        fprintf(stderr, ", nothing drafted");
    if (s->fallback_reason.len > 0) {
        fprintf(stderr, ", plain steps %" PRIu64 ": ", s->num_plain_steps);
        ctl_print_line(stderr, s->fallback_reason);
    } else {
        fprintf(stderr, "\n");
    }
}

/* A line end, so that the shell's prompt or an error starts on its own line. */
static void end_line(const struct generation *gen) {
    if (gen->last_byte != 0 && gen->last_byte != '\n' && isatty(STDOUT_FILENO))
        fputc('\n', stdout);
}

static int finish(struct generation *gen) {
    end_line(gen);
    if (gen->err.code == FT_E_PEER_PROTOCOL)
        return ctl_exit_from_err(&gen->err);
    if (gen->err.code != FT_OK)
        return ctl_exit_because(CTL_EXIT_OUTPUT, gen->err.text);
    int status = ctl_session_end(gen->session, &gen->status);
    if (status != CTL_EXIT_OK)
        return status;
    if (gen->last.finish == FT_WIRE_FINISH_NONE)
        return ctl_exit_because(CTL_EXIT_PROTOCOL, "the stream ended without a finish reason");
    if (gen->ids.failed || gen->text.failed)
        return ctl_exit_because(CTL_EXIT_OS, "no memory for the answer");
    if (gen->opts->json)
        status = print_json(gen);
    if (gen->opts->stats)
        print_stats(gen);
    return status;
}

static int run_stream(struct generation *gen) {
    struct ctl_session *session = gen->session;
    struct ft_err err = {0};
    if (ft_rpc_stream_open(&session->stream, session->client, FT_WIRE_INFERENCE_SERVICE "Generate",
                           &session->call, &handlers, gen, &err) != FT_OK)
        return ctl_exit_from_err(&err);
    if (ft_rpc_stream_send(session->stream, ft_buf_str(&session->message)) == FT_OK)
        ft_rpc_stream_half_close(session->stream);
    ft_rpc_loop_run(session->loop);
    return finish(gen);
}

int ctl_generate_run(struct ctl_options *opts) {
    struct ctl_session session;
    struct generation gen = {.session = &session, .opts = opts};
    struct ft_err err = {0};
    if (ctl_input_read(opts, &opts->request.input, &err) != FT_OK)
        return ctl_exit_from_err(&err);
    opts->request.request_id = opts->request_id;
    ft_buf_init(&gen.ids, 0);
    ft_buf_init(&gen.text, 0);
    ft_buf_init(&gen.request_id, 0);
    int status = ctl_session_open(&session, opts);
    if (status == CTL_EXIT_OK) {
        ft_wire_encode_generate(&opts->request, &session.message);
        status = session.message.failed ? ctl_exit_because(CTL_EXIT_OS, "no memory for the request")
                                        : run_stream(&gen);
    }
    ctl_session_close(&session);
    ft_buf_fini(&gen.ids);
    ft_buf_fini(&gen.text);
    ft_buf_fini(&gen.request_id);
    return status;
}
