#include "coordinator/encode.h"

#include "coordinator/app.h"

#define MODULE "encode"

/* Messages that wait for a thread hold their bytes: so many of the largest, all together. */
#define WAITING_MESSAGES_MAX 8

/* ---- encoding ------------------------------------------------------------------------------- */

size_t co_encode_bytes(const struct ft_wire_prompt *input) {
    size_t n = input->kind == FT_WIRE_INPUT_TEXT ? input->text.len : 0;
    for (size_t i = 0; input->kind == FT_WIRE_INPUT_CHAT && i < input->n_messages; i++)
        n += input->messages[i].content.len;
    return n;
}

static enum ft_code encode_chat(struct co_encode_job *job, struct ft_tokenizer *tokenizer,
                                struct ft_err *err) {
    struct ft_chat_message messages[CO_CHAT_MESSAGES_MAX];
    const struct ft_wire_prompt *input = job->input;
    if (input->n_messages > CO_CHAT_MESSAGES_MAX)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "chat has %zu messages: at most %d",
                          input->n_messages, CO_CHAT_MESSAGES_MAX);
    for (size_t i = 0; i < input->n_messages; i++)
        messages[i] = (struct ft_chat_message){input->messages[i].role, input->messages[i].content};
    return ft_chat_encode(job->app->pair.chat, tokenizer, messages, input->n_messages,
                          job->opts.tokens_max, &job->ids, err);
}

/* In any thread: of the app it reads what never changes once there is a tokenizer. */
static void encode(struct co_encode_job *job, struct ft_tokenizer *tokenizer) {
    struct ft_err *err = &job->err;
    if (job->input->kind == FT_WIRE_INPUT_CHAT) {
        job->code = encode_chat(job, tokenizer, err);
        if (job->code != FT_OK)
            ft_err_prefix(err, "chat");
    } else {
        job->code = ft_tokenizer_encode(tokenizer, job->input->text, &job->opts, &job->ids, err);
        if (job->code != FT_OK)
            ft_err_prefix(err, "text");
    }
}

static bool is_stopped(void *user) {
    struct co_encode_job *job = user;
    return atomic_load_explicit(&job->stop, memory_order_relaxed);
}

static void work(void *user, int32_t thread) {
    struct co_encode_job *job = user;
    struct ft_tokenizer *tokenizer = job->app->encoding.forks[thread];
    ft_tokenizer_set_stop(tokenizer, is_stopped, job);
    encode(job, tokenizer);
}

/* ---- jobs ----------------------------------------------------------------------------------- */

static void done(void *user) {
    struct co_encode_job *job = user;
    struct co_encoding *encoding = &job->app->encoding;
    if (job->prev != NULL)
        job->prev->next = job->next;
    else
        encoding->first = job->next;
    if (job->next != NULL)
        job->next->prev = job->prev;
    encoding->n_requests -= job->n_requests;
    encoding->n_bytes -= job->n_bytes;
    job->done(job);
}

enum ft_code co_encode_start(struct co_encode_job *job, struct ft_err *err) {
    struct co_encoding *encoding = &job->app->encoding;
    job->n_bytes = co_encode_bytes(job->input);
    if (job->n_bytes <= CO_ENCODE_INLINE_BYTES) {
        encode(job, job->app->pair.tokenizer);
        job->done(job);
        return FT_OK;
    }
    size_t bytes_max = (size_t)job->app->config.max_message_bytes * WAITING_MESSAGES_MAX;
    if (encoding->n_bytes + job->n_bytes > bytes_max)
        return ft_err_set(
            err, FT_E_REQ_EXHAUSTED, MODULE,
            "%zu bytes of prompts wait to be tokenized and %zu come: the limit is %zu "
            "(%d times max_message_bytes)",
            encoding->n_bytes, job->n_bytes, bytes_max, WAITING_MESSAGES_MAX);
    job->next = encoding->first;
    if (job->next != NULL)
        job->next->prev = job;
    encoding->first = job;
    encoding->n_requests += job->n_requests;
    encoding->n_bytes += job->n_bytes;
    job->work = (struct ft_rpc_job){.work = work, .done = done, .user = job};
    ft_rpc_offload_give(encoding->offload, &job->work);
    return FT_OK;
}

static void abandon(struct co_encode_job *job) {
    job->call = NULL;
    atomic_store_explicit(&job->stop, true, memory_order_relaxed);
}

void co_encode_call_gone(struct co_app *app, const struct ft_rpc_call *call) {
    for (struct co_encode_job *job = app->encoding.first; job != NULL; job = job->next)
        if (job->call == call)
            abandon(job);
}

void co_encode_fail_all(struct co_app *app, const struct ft_err *err) {
    for (struct co_encode_job *job = app->encoding.first; job != NULL; job = job->next) {
        if (job->call != NULL)
            ft_rpc_call_fail(job->call, err);
        abandon(job);
    }
}

/* ---- life ----------------------------------------------------------------------------------- */

enum ft_code co_encode_init(struct co_app *app, struct ft_err *err) {
    struct co_encoding *encoding = &app->encoding;
    enum ft_code code = FT_OK;
    for (int32_t i = 0; code == FT_OK && i < app->config.tokenizer_threads; i++)
        if (encoding->forks[i] == NULL) /* an attempt before may have made it */
            code = ft_tokenizer_fork(&encoding->forks[i], app->pair.tokenizer, err);
    return code == FT_OK ? ft_rpc_offload_create(&encoding->offload, app->loop,
                                                 app->config.tokenizer_threads, err)
                         : code;
}

void co_encode_fini(struct co_app *app) {
    ft_rpc_offload_close(&app->encoding.offload);
    for (int32_t i = 0; i < CO_ENCODE_THREADS_MAX; i++)
        ft_tokenizer_close(&app->encoding.forks[i]);
}
