#include <inttypes.h>
#include <unistd.h>

#include "foretokenctl/commands.h"
#include "foretokenctl/exit.h"
#include "foretokenctl/input.h"
#include "foretokenctl/print.h"
#include "foretokenctl/session.h"

static int no_such_reply(struct ft_err *err) {
    err->code = FT_E_PEER_PROTOCOL;
    return ctl_exit_from_err(err);
}

/* The text of ids, valid until the arena is reset. Exit status. */
static int detokenize(struct ctl_session *session, const struct ft_wire_detokenize *request,
                      struct ft_wire_text *out) {
    struct ft_err err = {0};
    ft_buf_reset(&session->message);
    ft_wire_encode_detokenize(request, &session->message);
    int status = ctl_session_call(session, FT_WIRE_INFERENCE_SERVICE "Detokenize");
    if (status != CTL_EXIT_OK)
        return status;
    if (ft_wire_decode_text(ft_buf_str(&session->reply), session->arena, out, &err) != FT_OK)
        return no_such_reply(&err);
    return CTL_EXIT_OK;
}

/* ---- tokenize ------------------------------------------------------------------------------- */

/* The pieces, by one call each: as JSON strings, or as lines "id  piece". */
static int add_pieces(struct ctl_session *session, const struct ft_wire_ids *ids, bool json,
                      struct ft_buf *out) {
    for (size_t i = 0; i < ids->n_ids; i++) {
        struct ft_wire_text piece;
        int status = detokenize(
            session, &(struct ft_wire_detokenize){.ids = &ids->ids[i], .n_ids = 1}, &piece);
        if (status != CTL_EXIT_OK)
            return status;
        if (json) {
            ft_buf_add_c(out, i == 0 ? "" : ",");
            ft_buf_add_json(out, piece.text);
        } else {
            ft_buf_addf(out, "%8" PRId32 "  ", ids->ids[i]);
            ctl_print_escape(out, piece.text, true);
            ft_buf_add_c(out, "\n");
        }
    }
    return CTL_EXIT_OK;
}

static int print_ids(struct ctl_session *session, const struct ctl_options *opts,
                     const struct ft_wire_ids *ids, struct ft_buf *out) {
    int status = CTL_EXIT_OK;
    if (opts->json) {
        ft_buf_addf(out, "{\"n_tokens\":%zu,\"token_ids\":", ids->n_ids);
        ctl_print_json_ids(out, ids->ids, ids->n_ids);
        if (opts->pieces) {
            ft_buf_add_c(out, ",\"pieces\":[");
            status = add_pieces(session, ids, true, out);
            ft_buf_add_c(out, "]");
        }
        ft_buf_add_c(out, "}\n");
    } else if (opts->pieces) {
        status = add_pieces(session, ids, false, out);
    } else {
        for (size_t i = 0; i < ids->n_ids; i++)
            ft_buf_addf(out, "%s%" PRId32, i == 0 ? "" : " ", ids->ids[i]);
        ft_buf_add_c(out, "\n");
    }
    return status == CTL_EXIT_OK ? ctl_exit_with_output(out) : status;
}

static int tokenize(struct ctl_session *session, const struct ctl_options *opts,
                    const struct ft_wire_tokenize *request) {
    struct ft_wire_ids ids;
    struct ft_err err = {0};
    struct ft_buf out;
    ft_wire_encode_tokenize(request, &session->message);
    int status = ctl_session_call(session, FT_WIRE_INFERENCE_SERVICE "Tokenize");
    if (status != CTL_EXIT_OK)
        return status;
    if (ft_wire_decode_ids(ft_buf_str(&session->reply), session->arena, &ids, &err) != FT_OK)
        return no_such_reply(&err);
    ft_buf_init(&out, 0);
    status = print_ids(session, opts, &ids, &out);
    ft_buf_fini(&out);
    return status;
}

int ctl_tokenize_run(struct ctl_options *opts) {
    struct ctl_session session;
    struct ft_err err = {0};
    struct ft_wire_tokenize request = {
        .has_parse_special = opts->request.has_parse_special,
        .parse_special = opts->request.parse_special,
        .has_add_special_tokens = opts->request.has_add_special_tokens,
        .add_special_tokens = opts->request.add_special_tokens,
    };
    if (ctl_input_read(opts, &request.input, &err) != FT_OK)
        return ctl_exit_from_err(&err);
    int status = ctl_session_open(&session, opts);
    if (status == CTL_EXIT_OK)
        status = tokenize(&session, opts, &request);
    ctl_session_close(&session);
    return status;
}

/* ---- detokenize ----------------------------------------------------------------------------- */

static int print_detokenized(const struct ctl_options *opts, struct ft_str text) {
    bool terminal = isatty(STDOUT_FILENO);
    struct ft_buf out;
    ft_buf_init(&out, 0);
    if (opts->json) {
        ft_buf_add_c(&out, "{\"text\":");
        ft_buf_add_json(&out, text);
        ft_buf_add_c(&out, "}\n");
    } else if (terminal) {
        ctl_print_escape(&out, text, false);
        ft_buf_add_c(&out, "\n");
    } else {
        ft_buf_add_str(&out, text);
    }
    int status = ctl_exit_with_output(&out);
    ft_buf_fini(&out);
    return status;
}

int ctl_detokenize_run(struct ctl_options *opts) {
    struct ctl_session session;
    struct ft_wire_text text;
    struct ft_err err = {0};
    for (size_t i = 1; i < opts->n_words; i++)
        if (ctl_flags_add_ids(opts->arena, "token_ids", opts->words[i], &opts->ids, &opts->n_ids,
                              &err) != FT_OK)
            return ctl_exit_from_err(&err);
    if (opts->n_ids == 0)
        return ctl_exit_because(CTL_EXIT_USAGE, "detokenize needs token ids");
    struct ft_wire_detokenize request = {
        .ids = opts->ids,
        .n_ids = opts->n_ids,
        .has_skip_special_tokens = opts->request.params.has_skip_special_tokens,
        .skip_special_tokens = opts->request.params.skip_special_tokens,
    };
    int status = ctl_session_open(&session, opts);
    if (status == CTL_EXIT_OK)
        status = detokenize(&session, &request, &text);
    if (status == CTL_EXIT_OK)
        status = print_detokenized(opts, text.text);
    ctl_session_close(&session);
    return status;
}
