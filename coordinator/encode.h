/* encode: texts and chats become token ids: short ones at once, long ones in helper threads, so
 * that running streams never wait for a tokenizer. Owns:    the helper threads and a fork of the
 * tokenizer for each; the list of jobs that are out. Runs in: coordinator; loop thread only, but
 * for the work of a job, which touches the job alone. Never:   drops a job: each is done exactly
 * once, also when its call is gone or the service ends. */
#ifndef CO_ENCODE_H
#define CO_ENCODE_H

#include <stdatomic.h>

#include "common/rpc/rpc.h"
#include "common/text/chat.h"
#include "common/text/tokenizer.h"
#include "common/wire/inference.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CO_ENCODE_THREADS_MAX 16
/* Texts up to here are encoded on the loop: at some 10 MB/s in less than a millisecond, where going
 * to a thread and back is a few wake-ups. */
#define CO_ENCODE_INLINE_BYTES 8192

struct co_app;
struct co_request;

struct co_encode_job {
    /* in */
    struct co_app *app;
    struct ft_rpc_call *call;           /* who asks; NULL once it is gone */
    const struct ft_wire_prompt *input; /* text or chat; borrowed until done */
    struct ft_encode_opts opts;
    int32_t n_requests;   /* that wait for it; 0: a call to Tokenize */
    struct ft_str client; /* whose share they count to */
    struct ft_str token;  /* the same for its call's token, by name */
    struct ft_str request_id;
    const struct co_request *request; /* the first that waits for it; NULL: a call to Tokenize */
    /* On the loop, last: the job and its ids are the owner's again. */
    void (*done)(struct co_encode_job *job);
    /* out */
    enum ft_code code;
    struct ft_err err;
    struct ft_ids ids;
    /* encode.c's own */
    struct ft_rpc_job work;
    struct co_encode_job *next, *prev;
    size_t n_bytes;
    atomic_bool stop; /* nobody wants it any more */
};

struct co_encoding {
    struct ft_rpc_offload *offload;
    struct ft_tokenizer *forks[CO_ENCODE_THREADS_MAX];
    struct co_encode_job *first; /* in helper threads, or waiting for one */
    int32_t n_requests;          /* of these jobs, all together */
    size_t n_bytes;
};

/* Once the tokenizer is there. fini waits for the threads; before the tokenizer is closed. */
enum ft_code co_encode_init(struct co_app *app, struct ft_err *err);
void co_encode_fini(struct co_app *app);

/* Bytes of a text or of all messages of a chat. */
size_t co_encode_bytes(const struct ft_wire_prompt *input);

/* Encode; done may have been called when this returns.
 * fail  FT_E_REQ_EXHAUSTED: so many bytes wait for threads already; done is not called */
enum ft_code co_encode_start(struct co_encode_job *job, struct ft_err *err);

/* The call is gone, or was answered otherwise: its job, if it has one, ends soon and for nobody. */
void co_encode_call_gone(struct co_app *app, const struct ft_rpc_call *call);
/* Answer every call with err. */
void co_encode_fail_all(struct co_app *app, const struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
