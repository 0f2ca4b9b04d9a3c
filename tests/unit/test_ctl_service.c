#include "unit/test_ctl_service.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/wire/admin.h"

static void send_generated(struct ft_rpc_call *call, const struct ft_wire_generated *message) {
    struct ft_buf buf;
    ft_buf_init(&buf, 0);
    ft_wire_encode_generated(message, &buf);
    ck_assert_int_eq(ft_rpc_call_send(call, ft_buf_str(&buf)), FT_OK);
    ft_buf_fini(&buf);
}

static void send_piece(struct ft_rpc_call *call, int32_t id, struct ft_str text) {
    struct ft_wire_generated m = {
        .token_ids = &id, .n_token_ids = 1, .text = text, .request_id = ft_str_c("")};
    send_generated(call, &m);
}

static void send_last(struct ft_rpc_call *call, uint32_t index) {
    struct ft_wire_generated m = {
        .index = index,
        .finish = FT_WIRE_FINISH_STOP,
        .has_matched_str = true,
        .matched_stop_str = {"\"\0", 2},
        .has_usage = true,
        .usage = {11, 3, 8, 0.25, 0.5, 2.5},
        .has_speculative = true,
        .speculative = {.num_drafts = 4,
                        .num_draft_tokens = 16,
                        .num_accepted_tokens = 10,
                        .num_target_steps = 5,
                        .num_plain_steps = 1,
                        .accepted_per_pos = {4, 6},
                        .drafted_per_pos = {8, 8},
                        .n_pos = 2,
                        .fallback_reason = ft_str_c("draft worker down")},
    };
    send_generated(call, &m);
}

static void send_end(struct ft_rpc_call *call) {
    send_last(call, 0);
    ft_rpc_call_finish(call, 0, NULL);
}

/* "hello", with what was asked for beside the text. */
static void send_hello(struct ft_rpc_call *call, const struct ft_wire_generate *request) {
    const struct ft_logprobs row = {
        .token_logprob = -0.5f, .n_top = 2, .ids = {5, 6}, .values = {-0.5f, -9999}};
    const int32_t prompt[] = {1, 2};
    struct ft_wire_generated first = {.request_id = ft_str_c("req-1")};
    if (request->params.has_prompt_logprobs) {
        first.prompt_logprobs = &row;
        first.n_prompt_logprobs = 1;
    }
    if (request->return_prompt_token_ids) {
        first.prompt_token_ids = prompt;
        first.n_prompt_token_ids = 2;
    }
    if (request->params.has_logprobs) {
        first.logprobs = &row;
        first.n_logprobs = 1;
    }
    send_generated(call, &first);
    send_piece(call, 5, ft_str_c("Hel"));
    send_piece(call, 6, ft_str_c("lo w\xC3\xB6rld"));
    send_piece(call, 7, ft_str_c("!"));
    for (uint32_t i = 1; i < request->params.n; i++) {
        const int32_t id = (int32_t)i;
        struct ft_wire_generated other = {
            .index = i, .token_ids = &id, .n_token_ids = 1, .text = ft_str_c("other")};
        send_generated(call, &other);
        send_last(call, i);
    }
    send_end(call);
}

/* "hello": three pieces. "control": one with control characters. "status N": that status. "hang":
 * a piece and nothing more. "garbage": no message. "unfinished": OK without a finish reason.
 * "flood": pieces without end. "held": waits for a "release". "flaky": UNAVAILABLE while
 * service->n_flaky lasts. "busy": RESOURCE_EXHAUSTED while service->n_busy lasts, then "release".
 */
static void on_generate(struct ft_rpc_call *call, void *user, struct ft_str bytes) {
    struct ctl_service *service = user;
    struct ft_err err = {0};
    service->n_generate++;
    ft_arena_reset(service->arena);
    if (ft_wire_decode_generate(bytes, service->arena, &service->request, &err) != FT_OK) {
        ft_rpc_call_fail(call, &err);
        return;
    }
    struct ft_str text = service->request.input.text;
    if (text.len > 7 && memcmp(text.ptr, "status ", 7) == 0) {
        ft_rpc_call_finish(call, atoi(text.ptr + 7), "it is so\nand so");
    } else if (ft_str_eq(text, ft_str_c("hang")) || ft_str_eq(text, ft_str_c("flood"))) {
        send_piece(call, 1, ft_str_c("wait"));
    } else if (ft_str_eq(text, ft_str_c("held")) && !service->released) {
        service->held = call;
    } else if (ft_str_eq(text, ft_str_c("busy")) && service->n_busy > 0) {
        service->n_busy--;
        ft_rpc_call_trailer(call, "retry-after-ms", "20");
        ft_rpc_call_finish(call, 8, "all places are taken");
    } else if (ft_str_eq(text, ft_str_c("held")) || ft_str_eq(text, ft_str_c("release")) ||
               ft_str_eq(text, ft_str_c("busy"))) {
        send_piece(call, 2, text);
        send_end(call);
        service->released = true;
        if (service->held != NULL) {
            send_piece(service->held, 1, ft_str_c("held"));
            send_end(service->held);
            service->held = NULL;
        }
    } else if (ft_str_eq(text, ft_str_c("flaky")) && service->n_flaky > 0) {
        service->n_flaky--;
        ft_rpc_call_finish(call, 14, "not yet");
    } else if (ft_str_eq(text, ft_str_c("garbage"))) {
        ft_rpc_call_send(call, ft_str_c("\xFF"));
        ft_rpc_call_finish(call, 0, NULL);
    } else if (ft_str_eq(text, ft_str_c("unfinished"))) {
        send_piece(call, 1, ft_str_c("x"));
        ft_rpc_call_finish(call, 0, NULL);
    } else if (ft_str_eq(text, ft_str_c("control"))) {
        send_piece(call, 1, (struct ft_str){"a\x1B[31m\t\xC2\x9B\xC3\xA9\0\x7F\n", 14});
        send_end(call);
    } else {
        send_hello(call, &service->request);
    }
}

static void on_writable(struct ft_rpc_call *call, void *user) {
    struct ctl_service *service = user;
    if (ft_str_eq(service->request.input.text, ft_str_c("flood")))
        send_piece(call, 1, ft_str_c("0123456789"));
}

static void on_cancelled(struct ft_rpc_call *call, void *user) {
    (void)call;
    ((struct ctl_service *)user)->n_cancelled++;
}

static void reply(struct ft_rpc_call *call, struct ft_buf *buf) {
    ft_rpc_call_reply(call, ft_buf_str(buf));
    ft_buf_fini(buf);
}

/* A token for each byte, of its value. */
static void on_tokenize(struct ft_rpc_call *call, void *user, struct ft_str bytes) {
    struct ctl_service *service = user;
    struct ft_wire_tokenize request;
    struct ft_err err = {0};
    struct ft_buf buf;
    int32_t ids[64];
    size_t n = 0;
    if (ft_wire_decode_tokenize(bytes, service->arena, &request, &err) != FT_OK) {
        ft_rpc_call_fail(call, &err);
        return;
    }
    struct ft_str text = request.input.kind == FT_WIRE_INPUT_CHAT
                             ? request.input.messages[0].content
                             : request.input.text;
    for (; n < text.len && n < 64; n++)
        ids[n] = (unsigned char)text.ptr[n];
    ft_buf_init(&buf, 0);
    ft_wire_encode_ids(&(struct ft_wire_ids){ids, n}, &buf);
    reply(call, &buf);
}

static void on_detokenize(struct ft_rpc_call *call, void *user, struct ft_str bytes) {
    struct ctl_service *service = user;
    struct ft_wire_detokenize request;
    struct ft_err err = {0};
    struct ft_buf buf;
    char text[64];
    if (ft_wire_decode_detokenize(bytes, service->arena, &request, &err) != FT_OK) {
        ft_rpc_call_fail(call, &err);
        return;
    }
    for (size_t i = 0; i < request.n_ids && i < 64; i++)
        text[i] = (char)request.ids[i];
    ft_buf_init(&buf, 0);
    ft_wire_encode_text(&(struct ft_wire_text){{text, request.n_ids}}, &buf);
    reply(call, &buf);
}

static void on_model(struct ft_rpc_call *call, void *user, struct ft_str bytes) {
    struct ctl_service *service = user;
    const int32_t eos[] = {2, 3};
    struct ft_buf buf;
    struct ft_wire_model_info info = {
        .target = {.name = ft_str_c("tiny\x1B"),
                   .architecture = ft_str_c("LlamaForCausalLM"),
                   .vocab_size = 512,
                   .n_parameters = 1234567},
        .has_draft = service->has_draft,
        .draft = {.name = ft_str_c("tinier")},
        .speculation = ft_str_c("draft_model"),
        .num_speculative_tokens = 4,
        .eos_token_ids = eos,
        .n_eos_token_ids = 2,
    };
    (void)bytes;
    ft_buf_init(&buf, 0);
    ft_wire_encode_model_info(&info, &buf);
    reply(call, &buf);
}

static void on_stats(struct ft_rpc_call *call, void *user, struct ft_str bytes) {
    struct ctl_service *service = user;
    struct ft_buf buf;
    struct ft_wire_stats stats = {.version = ft_str_c("1.2.3"), .has_draft = service->has_draft};
    (void)bytes;
    if (!service->quiet) {
        stats.num_drafts_total = 10;
        stats.num_draft_tokens_total = 40;
        stats.num_accepted_tokens_total = 30;
        stats.n_pos = 2;
        stats.accepted_per_pos[0] = 20;
        stats.accepted_per_pos[1] = 10;
        stats.target = (struct ft_wire_worker_state){.up = true, .epoch = UINT64_MAX};
    }
    ft_buf_init(&buf, 0);
    ft_wire_encode_stats(&stats, &buf);
    reply(call, &buf);
}

static const struct ft_rpc_method methods[] = {
    {.path = FT_WIRE_INFERENCE_SERVICE "Generate",
     .kind = FT_RPC_SERVER_STREAM,
     .on_message = on_generate,
     .on_writable = on_writable,
     .on_cancelled = on_cancelled},
    {.path = FT_WIRE_INFERENCE_SERVICE "Tokenize", .kind = FT_RPC_UNARY, .on_message = on_tokenize},
    {.path = FT_WIRE_INFERENCE_SERVICE "Detokenize",
     .kind = FT_RPC_UNARY,
     .on_message = on_detokenize},
    {.path = FT_WIRE_INFERENCE_SERVICE "GetModelInfo",
     .kind = FT_RPC_UNARY,
     .on_message = on_model},
    {.path = FT_WIRE_ADMIN_SERVICE "GetStats", .kind = FT_RPC_UNARY, .on_message = on_stats},
};

void ctl_service_open(struct ctl_service *service) {
    struct ft_err err = {0};
    struct ft_rpc_server_opts opts = {
        .methods = methods, .n_methods = sizeof methods / sizeof methods[0], .service = service};
    *service = (struct ctl_service){.dir = "/tmp/ft_ctl_XXXXXX"};
    ck_assert_ptr_nonnull(mkdtemp(service->dir));
    snprintf(service->endpoint, sizeof service->endpoint, "unix:%s/s", service->dir);
    service->arena = ft_arena_create(65536, 0);
    ck_assert_ptr_nonnull(service->arena);
    ck_assert_int_eq(ft_rpc_loop_create(&service->loop, 0, &err), FT_OK);
    ck_assert_int_eq(ft_rpc_server_create(&service->server, service->loop, &opts, &err), FT_OK);
    ck_assert_msg(ft_rpc_server_listen(service->server, service->endpoint, NULL, &err) == FT_OK,
                  "%s", err.text);
    ck_assert_int_eq(ft_rpc_server_start(service->server, &err), FT_OK);
}

void ctl_service_close(struct ctl_service *service) {
    char command[64];
    ft_rpc_server_close(&service->server, 0);
    ft_rpc_loop_destroy(&service->loop);
    ft_arena_destroy(&service->arena);
    snprintf(command, sizeof command, "rm -r %s", service->dir);
    ck_assert_int_eq(system(command), 0);
}
