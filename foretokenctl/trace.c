#include "foretokenctl/trace.h"

#include <errno.h>
#include <string.h>

#include "common/wire/admin.h"
#include "foretokenctl/commands.h"
#include "foretokenctl/exit.h"
#include "foretokenctl/print.h"
#include "foretokenctl/session.h"

static int write_file(const struct ft_buf *text, const char *path) {
    FILE *file = fopen(path, "w");
    bool ok = file != NULL && fwrite(text->ptr, 1, text->len, file) == text->len;
    if (file != NULL)
        ok = fclose(file) == 0 && ok;
    if (ok)
        return CTL_EXIT_OK;
    char why[256];
    snprintf(why, sizeof why, "cannot write %.150s: %s", path, strerror(errno));
    return ctl_exit_because(CTL_EXIT_OUTPUT, why);
}

static int render(struct ctl_session *session, struct ft_buf *out) {
    struct ft_wire_trace trace;
    struct ft_err err = {0};
    if (ft_wire_decode_trace(ft_buf_str(&session->reply), session->arena, &trace, &err) != FT_OK)
        return ctl_exit_because(CTL_EXIT_PROTOCOL, err.text);
    ctl_trace_json(&trace, out);
    if (out->failed)
        return ctl_exit_because(CTL_EXIT_OS, "no memory for the trace");
    return CTL_EXIT_OK;
}

int ctl_trace_run(struct ctl_options *opts) {
    struct ctl_session session;
    struct ft_buf out;
    if (opts->n_words > 2)
        return ctl_exit_because(CTL_EXIT_USAGE, "trace takes one FILE at most");
    ft_buf_init(&out, 0);
    int status = ctl_session_open(&session, opts);
    if (status == CTL_EXIT_OK) {
        struct ft_wire_trace_request request = {.max_rounds = opts->rounds};
        ft_wire_encode_trace_request(&request, &session.message);
        status = ctl_session_call(&session, FT_WIRE_ADMIN_SERVICE "Trace");
    }
    if (status == CTL_EXIT_OK)
        status = render(&session, &out);
    if (status == CTL_EXIT_OK)
        status =
            opts->n_words == 2 ? write_file(&out, opts->words[1].ptr) : ctl_exit_with_output(&out);
    ft_buf_fini(&out);
    ctl_session_close(&session);
    return status;
}
