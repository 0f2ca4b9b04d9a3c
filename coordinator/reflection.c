#include "coordinator/reflection.h"

#include "common/wire/reflection.h"

#define MODULE "reflection"
#define ARENA_CHUNK 1024
#define ARENA_MAX ((size_t)1 << 20) /* of a request that holds a name or two */

static enum ft_code answer(struct ft_str message, struct ft_arena *arena, struct ft_buf *out,
                           struct ft_err *err) {
    struct ft_wire_schema schema; /* some pointers into the descriptors: cheap to make */
    if (arena == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory");
    enum ft_code code = ft_wire_schema_read(&schema, ft_wire_schema_builtin(), err);
    if (code == FT_OK)
        code = ft_wire_reflection_answer(&schema, message, arena, out, err);
    if (code == FT_OK && out->failed)
        code = ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory");
    return code;
}

void co_reflection_message(struct ft_rpc_call *call, void *service, struct ft_str message) {
    struct ft_err err = {0};
    struct ft_buf out;
    (void)service;
    ft_buf_init(&out, 0);
    struct ft_arena *arena = ft_arena_create(ARENA_CHUNK, ARENA_MAX);
    enum ft_code code = answer(message, arena, &out, &err);
    if (code == FT_OK && ft_rpc_call_send(call, ft_buf_str(&out)) != FT_OK)
        code = ft_err_set(&err, FT_E_REQ_EXHAUSTED, MODULE, "answers wait to be read");
    if (code != FT_OK)
        ft_rpc_call_fail(call, &err);
    ft_arena_destroy(&arena);
    ft_buf_fini(&out);
}

void co_reflection_half_close(struct ft_rpc_call *call, void *service) {
    (void)service;
    ft_rpc_call_finish(call, 0, NULL);
}
