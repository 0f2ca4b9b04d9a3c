/* answer: how unary calls are answered, from a message in an arena to a reply from a buffer.
 * Owns:    both, until the call has its answer.
 * Runs in: coordinator; loop thread only.
 * Never:   sends a reply that a lack of memory has cut short. */
#ifndef CO_ANSWER_H
#define CO_ANSWER_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/rpc/rpc.h"

#ifdef __cplusplus
extern "C" {
#endif

struct co_app;

/* Decode message in arena and append the reply to out. */
typedef enum ft_code (*co_answer_fn)(struct co_app *app, struct ft_str message,
                                     struct ft_arena *arena, struct ft_buf *out,
                                     struct ft_err *err);
/* Answer call with what fn makes of message, in an arena of arena_max bytes at most. */
void co_answer(struct ft_rpc_call *call, struct co_app *app, struct ft_str message,
               size_t arena_max, co_answer_fn fn);
/* Answer call with what is in out, which is emptied. */
void co_answer_with(struct ft_rpc_call *call, struct ft_buf *out);

#ifdef __cplusplus
}
#endif
#endif
