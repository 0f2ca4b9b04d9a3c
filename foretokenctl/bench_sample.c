/* One sample: requests that run at once, seen from the client; and the rounds that the service ran
 * meanwhile, as it traced them. */
#include <inttypes.h>
#include <string.h>

#include "common/base/clock.h"
#include "foretokenctl/bench.h"
#include "foretokenctl/exit.h"

struct call {
    struct sample *sample;
    struct ft_arena *arena;
    struct ft_rpc_stream *stream;
    int64_t begin_ns, first_ns, last_ns;
    uint64_t tokens, prompt_tokens;
    struct ft_wire_spec_stats spec;
    struct ft_buf text, itls; /* itls: double, seconds between messages */
    struct ft_rpc_status status;
    struct ft_err err;
};

struct sample {
    struct bench *bench;
    struct bench_row *row;
    struct call calls[BENCH_TOGETHER_MAX];
    int32_t n_running;
};

static void on_message(void *user, struct ft_str bytes) {
    struct call *call = user;
    struct ft_wire_generated message;
    int64_t now = ft_clock_now_ns();
    ft_arena_reset(call->arena);
    if (ft_wire_decode_generated(bytes, call->arena, &message, &call->err) != FT_OK) {
        ft_rpc_stream_cancel(call->stream);
        return;
    }
    if (message.n_token_ids > 0) {
        if (call->first_ns == 0) {
            double first = (double)(now - call->begin_ns) * 1e-9;
            call->first_ns = now;
            ft_buf_add(&call->sample->row->firsts, &first, sizeof first);
        } else {
            double wait = (double)(now - call->last_ns) * 1e-9;
            double gap = wait / (double)message.n_token_ids;
            ft_buf_add(&call->itls, &wait, sizeof wait);
            for (size_t i = 0; i < message.n_token_ids; i++)
                ft_buf_add(&call->sample->row->gaps, &gap, sizeof gap);
        }
        call->last_ns = now;
        call->tokens += message.n_token_ids;
    }
    ft_buf_add_str(&call->text, message.text);
    if (message.has_usage)
        call->prompt_tokens = message.usage.prompt_tokens;
    if (message.has_speculative) {
        call->spec = message.speculative;
        call->spec.fallback_reason = (struct ft_str){NULL, 0};
    }
}

static void on_done(void *user, const struct ft_rpc_status *status) {
    struct call *call = user;
    call->status = *status;
    call->stream = NULL;
    call->sample->n_running--;
}

static const struct ft_rpc_stream_handlers k_handlers = {.on_message = on_message,
                                                         .on_done = on_done};

static int open_call(struct sample *sample, struct call *call, size_t prompt) {
    struct bench *bench = sample->bench;
    const struct bench_row *row = sample->row;
    struct ft_wire_generate request = bench->opts->request;
    struct ft_err err = {0};
    request.input = (struct ft_wire_prompt){.kind = FT_WIRE_INPUT_TEXT,
                                            .text = bench->prompts[prompt % bench->n_prompts]};
    request.stream = true;
    request.params.ignore_eos = true;
    if (!request.params.has_max_tokens) {
        request.params.has_max_tokens = true;
        request.params.max_tokens = 128;
    }
    if (!request.params.has_temperature) {
        request.params.has_temperature = true;
        request.params.temperature = 0;
    }
    if (!request.params.has_seed) {
        request.params.has_seed = true;
        request.params.seed = 1 + prompt;
    }
    request.has_spec_enabled = true;
    request.spec_enabled = row->speculates;
    request.has_num_speculative_tokens = row->k >= 0;
    request.num_speculative_tokens = row->k >= 0 ? (uint32_t)row->k : 0;
    request.drafter = row->drafter;
    ft_buf_reset(&bench->session->message);
    ft_wire_encode_generate(&request, &bench->session->message);
    call->sample = sample;
    ft_buf_init(&call->text, 0);
    ft_buf_init(&call->itls, 0);
    call->arena = ft_arena_create(1 << 14, 0);
    if (call->arena == NULL)
        return ctl_exit_because(CTL_EXIT_OS, "no memory for replies");
    call->begin_ns = ft_clock_now_ns();
    if (ft_rpc_stream_open(&call->stream, bench->session->client,
                           FT_WIRE_INFERENCE_SERVICE "Generate", &bench->session->call, &k_handlers,
                           call, &err) != FT_OK)
        return ctl_exit_from_err(&err);
    sample->n_running++;
    if (ft_rpc_stream_send(call->stream, ft_buf_str(&bench->session->message)) == FT_OK)
        ft_rpc_stream_half_close(call->stream);
    return CTL_EXIT_OK;
}

/* The rounds that the service keeps; the session's arena has them. */
static int get_rounds(struct bench *bench, uint32_t max_rounds, struct ft_wire_trace *trace) {
    struct ft_err err = {0};
    const struct ft_wire_trace_request request = {.max_rounds = max_rounds};
    ft_buf_reset(&bench->session->message);
    ft_wire_encode_trace_request(&request, &bench->session->message);
    int status = ctl_session_call(bench->session, FT_WIRE_ADMIN_SERVICE "Trace");
    if (status != CTL_EXIT_OK)
        return status;
    ft_arena_reset(bench->session->arena);
    if (ft_wire_decode_trace(ft_buf_str(&bench->session->reply), bench->session->arena, trace,
                             &err) != FT_OK)
        return ctl_exit_because(CTL_EXIT_PROTOCOL, err.text);
    return CTL_EXIT_OK;
}

/* One request in the shape of vLLM's benchmark results, RequestFuncOutput; row and concurrency are
 * ours. */
static void add_request(struct bench *bench, const struct bench_row *row, const struct call *call) {
    struct ft_buf *out = &bench->requests;
    if (out->len > 0)
        ft_buf_add_c(out, ",\n");
    ft_buf_add_c(out, "{\"row\":");
    ft_buf_add_json(out, ft_str_c(row->label));
    ft_buf_addf(out,
                ",\"concurrency\":%d,\"success\":true,\"error\":\"\",\"prompt_len\":%" PRIu64
                ",\"output_tokens\":%" PRIu64 ",\"start_time\":%.6f,\"ttft\":%.6f,"
                "\"latency\":%.6f,\"tpot\":%.6f,\"itl\":[",
                row->together, call->prompt_tokens, call->tokens, (double)call->begin_ns * 1e-9,
                (double)(call->first_ns - call->begin_ns) * 1e-9,
                (double)(call->last_ns - call->begin_ns) * 1e-9,
                call->tokens > 1
                    ? (double)(call->last_ns - call->first_ns) * 1e-9 / (double)(call->tokens - 1)
                    : 0.0);
    for (size_t i = 0; i < call->itls.len / sizeof(double); i++) {
        double itl;
        memcpy(&itl, call->itls.ptr + i * sizeof itl, sizeof itl);
        ft_buf_addf(out, i == 0 ? "%.6f" : ",%.6f", itl);
    }
    ft_buf_add_c(out, "],\"generated_text\":");
    ft_buf_add_json(out, ft_buf_str(&call->text));
    ft_buf_add_c(out, "}");
}

static void add_call(struct bench_row *row, const struct call *call) {
    const struct ft_wire_spec_stats *spec = &call->spec;
    row->drafts += spec->num_drafts;
    row->drafted += spec->num_draft_tokens;
    row->accepted += spec->num_accepted_tokens;
    row->steps += spec->num_target_steps;
    row->lossy = row->lossy || spec->lossy;
    for (size_t i = 0; i < spec->n_pos; i++) {
        row->drafted_at[i] += spec->drafted_per_pos[i];
        row->accepted_at[i] += spec->accepted_per_pos[i];
    }
}

/* Speed is that of decoding: from the first token of the first request to the last of the last. */
static int add_sample(struct sample *sample) {
    struct bench_row *row = sample->row;
    int64_t first = INT64_MAX, last = 0;
    uint64_t tokens = 0;
    for (int32_t i = 0; i < row->together; i++) {
        const struct call *call = &sample->calls[i];
        if (call->err.code != FT_OK)
            return ctl_exit_because(CTL_EXIT_PROTOCOL, call->err.text);
        int status = ctl_session_end(sample->bench->session, &call->status);
        if (status != CTL_EXIT_OK)
            return status;
        if (call->tokens < 2)
            return ctl_exit_because(CTL_EXIT_PROTOCOL, "a reply has fewer than two tokens");
        first = call->first_ns < first ? call->first_ns : first;
        last = call->last_ns > last ? call->last_ns : last;
        tokens += call->tokens - 1;
        add_call(row, call);
        add_request(sample->bench, row, call);
    }
    double wall = (double)(last - first) * 1e-9, speed = wall > 0 ? (double)tokens / wall : 0;
    row->tokens += tokens;
    ft_buf_add(&row->speeds, &speed, sizeof speed);
    return CTL_EXIT_OK;
}

int bench_sample(struct bench *bench, struct bench_row *row, size_t first_prompt) {
    static struct sample sample; /* large */
    struct ft_wire_trace trace = {0};
    memset(&sample, 0, sizeof sample);
    sample.bench = bench;
    sample.row = row;
    int status = get_rounds(bench, 1, &trace);
    uint64_t first_round = trace.rounds_total;
    for (int32_t i = 0; i < row->together && status == CTL_EXIT_OK; i++)
        status = open_call(&sample, &sample.calls[i], first_prompt + (size_t)i);
    bool cancelled = false;
    while (sample.n_running > 0) {
        if ((status != CTL_EXIT_OK || bench->session->signo != 0) && !cancelled) {
            cancelled = true;
            for (int32_t i = 0; i < row->together; i++)
                if (sample.calls[i].stream != NULL)
                    ft_rpc_stream_cancel(sample.calls[i].stream);
        }
        ft_rpc_loop_step(bench->session->loop, INT64_MAX);
    }
    if (status == CTL_EXIT_OK)
        status = add_sample(&sample);
    if (status == CTL_EXIT_OK)
        status = get_rounds(bench, 0, &trace);
    if (status == CTL_EXIT_OK)
        bench_take_rounds(row, &trace, first_round);
    for (int32_t i = 0; i < row->together; i++) {
        ft_arena_destroy(&sample.calls[i].arena);
        ft_buf_fini(&sample.calls[i].text);
        ft_buf_fini(&sample.calls[i].itls);
    }
    return status;
}
