#include "coordinator/answer.h"

#define MODULE "answer"

#define ARENA_CHUNK 4096

void co_answer_with(struct ft_rpc_call *call, struct ft_buf *out) {
    struct ft_err err = {0};
    if (out->failed) {
        ft_err_set(&err, FT_E_PROC_MEMORY, MODULE, "no memory for the reply");
        ft_rpc_call_fail(call, &err);
    } else {
        ft_rpc_call_reply(call, ft_buf_str(out));
    }
    ft_buf_fini(out);
}

void co_answer(struct ft_rpc_call *call, struct co_app *app, struct ft_str message,
               size_t arena_max, co_answer_fn fn) {
    struct ft_err err = {0};
    struct ft_buf out;
    ft_buf_init(&out, 0);
    struct ft_arena *arena = ft_arena_create(ARENA_CHUNK, arena_max);
    enum ft_code code = arena != NULL ? fn(app, message, arena, &out, &err)
                                      : ft_err_set(&err, FT_E_PROC_MEMORY, MODULE, "no memory");
    ft_arena_destroy(&arena);
    if (code == FT_OK) {
        co_answer_with(call, &out);
        return;
    }
    ft_rpc_call_fail(call, &err);
    ft_buf_fini(&out);
}
