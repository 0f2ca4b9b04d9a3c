#include <inttypes.h>
#include <unistd.h>

#include "foretokenctl/answer.h"
#include "foretokenctl/commands.h"
#include "foretokenctl/exit.h"
#include "foretokenctl/input.h"
#include "foretokenctl/print.h"
#include "foretokenctl/session.h"

struct generation {
    struct ctl_session *session;
    const struct ctl_options *opts;
    struct ctl_answer answer;
    bool keep; /* the text is printed at the end: as JSON, or one continuation after the other */
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
    if (ctl_answer_take(&gen->answer, bytes, gen->keep, &message, &gen->err) != FT_OK)
        stop_because(gen);
    else if (!gen->keep)
        show_text(gen, message.text);
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

static int print_json(const struct generation *gen) {
    struct ft_buf out;
    ft_buf_init(&out, 0);
    ft_buf_add_c(&out, "{");
    ctl_answer_json(&gen->answer, &out);
    ft_buf_add_c(&out, "}\n");
    int status = ctl_exit_with_output(&out);
    ft_buf_fini(&out);
    return status;
}

/* Several continuations, each under a line with its index. */
static int print_choices(struct generation *gen) {
    for (size_t i = 0; i < gen->answer.n_choices; i++) {
        struct ft_str text = ft_buf_str(&gen->answer.choices[i].text);
        printf("--- %zu\n", i);
        show_text(gen, text);
        if (text.len > 0 && text.ptr[text.len - 1] != '\n')
            fputc('\n', stdout);
    }
    gen->last_byte = '\n';
    return gen->err.code == FT_OK ? CTL_EXIT_OK : ctl_exit_because(CTL_EXIT_OUTPUT, gen->err.text);
}

static void print_stats(const struct ft_wire_generated *last) {
    const struct ft_wire_usage *u = &last->usage;
    const struct ft_wire_spec_stats *s = &last->speculative;
    double decode_s = u->total_seconds - u->first_token_seconds;
    double after_first = u->completion_tokens > 0 ? u->completion_tokens - 1.0 : 0;
    fprintf(stderr,
            "finish %s, prompt %" PRIu32 " tokens (%" PRIu32 " cached), output %" PRIu32
            " tokens, first after %.3f s, total %.3f s, %.1f tokens/s",
            ft_wire_finish_name(last->finish), u->prompt_tokens, u->cached_tokens,
            u->completion_tokens, u->first_token_seconds, u->total_seconds,
            decode_s > 0 ? after_first / decode_s : 0);
    fprintf(stderr, ", %" PRIu64 " target steps", s->num_target_steps);
    if (s->num_drafts > 0)
        fprintf(stderr,
                ", accepted %" PRIu64 " of %" PRIu64 " drafted (%.1f %%), %.2f tokens a draft%s",
                s->num_accepted_tokens, s->num_draft_tokens, 100 * ctl_answer_acceptance_rate(s),
                ctl_answer_mean_acceptance_length(s), s->lossy ? ", lossy" : "");
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
    if (!ctl_answer_complete(&gen->answer))
        return ctl_exit_because(CTL_EXIT_PROTOCOL, "the stream ended without a finish reason");
    if (ctl_answer_failed(&gen->answer))
        return ctl_exit_because(CTL_EXIT_OS, "no memory for the answer");
    if (gen->opts->json)
        status = print_json(gen);
    else if (gen->keep)
        status = print_choices(gen);
    for (size_t i = 0; gen->opts->stats && i < gen->answer.n_choices; i++)
        print_stats(&gen->answer.choices[i].last);
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
    const struct ft_wire_params *params = &opts->request.params;
    if (ctl_input_read(opts, &opts->request.input, &err) != FT_OK)
        return ctl_exit_from_err(&err);
    opts->request.request_id = opts->request_id;
    gen.keep = opts->json || (params->has_n && params->n > 1);
    int status = ctl_session_open(&session, opts);
    if (!ctl_answer_init(&gen.answer, params->n) && status == CTL_EXIT_OK)
        status = ctl_exit_because(CTL_EXIT_OS, "no memory for the answer");
    if (status == CTL_EXIT_OK) {
        ft_wire_encode_generate(&opts->request, &session.message);
        status = session.message.failed ? ctl_exit_because(CTL_EXIT_OS, "no memory for the request")
                                        : run_stream(&gen);
    }
    ctl_session_close(&session);
    ctl_answer_fini(&gen.answer);
    return status;
}
