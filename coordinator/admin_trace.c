/* Admin.Trace: the rings of trace.h, as they are when the call comes. */
#include "common/wire/trace.h"
#include "coordinator/service.h"

#define ARENA_CHUNK 1024
#define ARENA_MAX 65536

void co_admin_trace(struct ft_rpc_call *call, void *service, struct ft_str message) {
    struct co_app *app = service;
    struct ft_wire_trace_request in;
    struct ft_err err = {0};
    struct ft_buf out;
    ft_buf_init(&out, 0);
    struct ft_arena *arena = ft_arena_create(ARENA_CHUNK, ARENA_MAX);
    enum ft_code code = arena == NULL ? ft_err_set(&err, FT_E_PROC_MEMORY, "admin", "no memory")
                                      : ft_wire_decode_trace_request(message, arena, &in, &err);
    if (code == FT_OK)
        co_trace_encode(&app->trace, in.max_rounds, &out);
    if (code == FT_OK && out.failed)
        code = ft_err_set(&err, FT_E_PROC_MEMORY, "admin", "no memory for the trace");
    if (code == FT_OK)
        ft_rpc_call_reply(call, ft_buf_str(&out));
    else
        ft_rpc_call_fail(call, &err);
    ft_arena_destroy(&arena);
    ft_buf_fini(&out);
}
