/* Admin.Trace: the rings of trace.h, as they are when the call comes. */
#include "common/wire/trace.h"
#include "coordinator/answer.h"
#include "coordinator/service.h"

#define ARENA_MAX 65536

static enum ft_code trace(struct co_app *app, struct ft_str message, struct ft_arena *arena,
                          struct ft_buf *out, struct ft_err *err) {
    struct ft_wire_trace_request in;
    enum ft_code code = ft_wire_decode_trace_request(message, arena, &in, err);
    if (code == FT_OK)
        co_trace_encode(&app->trace, in.max_rounds, out);
    return code;
}

void co_admin_trace(struct ft_rpc_call *call, void *service, struct ft_str message) {
    co_answer(call, service, message, ARENA_MAX, trace);
}
