/* The process of fake_draft.h: fake_draft_process ENDPOINT, with a socket to the test as its
 * standard input. The test sends the DescribeResponse, hears "ready", and shuts its side down to
 * end it; the last word is the number of steps that were answered. */
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/ipc/region.h"
#include "common/rpc/rpc.h"
#include "common/wire/worker.h"
#include "support/fake_draft.h"

enum { KINDS = 8 }; /* of nonsense: noise, then what send_wrong has */

struct fake_draft {
    struct ft_region *region;
    struct ft_arena *identity, *scratch;
    struct ft_wire_describe describe;
    struct ft_buf bytes;
    int n_steps;
    uint64_t seed;       /* of the noise */
    uint64_t kind_first; /* of the nonsense, another for each process: it may answer but few */
};

static void on_describe(struct ft_rpc_call *call, void *service, struct ft_str message) {
    struct fake_draft *fake = service;
    (void)message;
    ft_rpc_call_reply(call, ft_buf_str(&fake->bytes));
}

static void on_attach(struct ft_rpc_call *call, void *service, struct ft_str message) {
    struct fake_draft *fake = service;
    struct ft_wire_attach attach;
    struct ft_buf out;
    struct ft_region_layout layout = {fake->describe.epoch, (int32_t)fake->describe.max_step_rows,
                                      (int32_t)fake->describe.vocab_size};
    ft_arena_reset(fake->scratch);
    if (ft_wire_decode_attach(message, fake->scratch, &attach, NULL) != FT_OK) {
        ft_rpc_call_finish(call, 3, "no attach");
        return;
    }
    if (!attach.mapped) {
        ft_region_close(&fake->region);
        if (ft_region_create(&fake->region, &layout, NULL) != FT_OK) {
            ft_rpc_call_finish(call, 13, "no region");
            return;
        }
    }
    ft_buf_init(&out, 0);
    struct ft_wire_attached attached = {ft_str_c(ft_region_name(fake->region)),
                                        ft_region_bytes(fake->region)};
    ft_wire_encode_attached(&attached, &out);
    ft_rpc_call_reply(call, ft_buf_str(&out));
    ft_buf_fini(&out);
}

static void send_noise(struct fake_draft *fake, struct ft_rpc_call *call) {
    unsigned char noise[64];
    for (size_t i = 0; i < sizeof noise; i++) {
        fake->seed = fake->seed * 6364136223846793005u + 1442695040888963407u;
        noise[i] = (unsigned char)(fake->seed >> 56);
    }
    ft_rpc_call_send(call, (struct ft_str){(const char *)noise, sizeof noise});
}

/* A well-formed reply, wrong in one way: 1 one sequence too few, 2 a sequence that was not asked
 * for, 3 more tokens than asked for, 4 tokens outside the vocabulary, 5 rows of nothing, 6 and 7
 * sequences that are lost but for more positions than there were. */
static void send_wrong(struct ft_rpc_call *call, const struct ft_wire_step *step, int kind) {
    static const int32_t outside[] = {1 << 30, -7, 99999, 12345678};
    static const int32_t inside[] = {65, 66, 67, 68, 69, 70, 71, 72, 73, 74,
                                     75, 76, 77, 78, 79, 80, 81, 82, 83, 84};
    struct ft_wire_seq_result results[64] = {0};
    size_t n = step->n_seqs < 64 ? step->n_seqs : 64;
    for (size_t i = 0; i < n; i++) {
        const struct ft_wire_seq_step *seq = &step->seqs[i];
        results[i] = (struct ft_wire_seq_result){
            .seq_id = kind == 2 ? seq->seq_id + 77 : seq->seq_id,
            .status = kind >= 6 ? FT_WIRE_SEQ_LOST : FT_WIRE_SEQ_OK,
            .cached = kind == 6   ? 0xE0000000u
                      : kind == 7 ? seq->keep + 1
                                  : seq->keep + (uint32_t)seq->n_tokens,
            .draft_ids = kind == 4 ? outside : inside,
            .n_draft_ids = kind == 3            ? 20
                           : seq->draft_len < 4 ? seq->draft_len
                                                : 4,
            .n_rows = seq->has_sampling && seq->sampling.temperature > 0 ? seq->draft_len : 0,
        };
    }
    struct ft_wire_step_reply reply = {
        .step_id = step->step_id,
        .epoch = step->epoch,
        .compute_nanos = 1000,
        .results = results,
        .n_results = kind == 1 && n > 0 ? n - 1 : n,
    };
    struct ft_buf out;
    ft_buf_init(&out, 0);
    ft_wire_encode_step_reply(&reply, &out);
    ft_rpc_call_send(call, ft_buf_str(&out));
    ft_buf_fini(&out);
}

static void on_step(struct ft_rpc_call *call, void *service, struct ft_str message) {
    struct fake_draft *fake = service;
    struct ft_wire_step step;
    ft_arena_reset(fake->scratch);
    if (ft_wire_decode_step(message, fake->scratch, &step, NULL) != FT_OK)
        return;
    int kind = (int)((fake->kind_first + (uint64_t)fake->n_steps++) % KINDS);
    if (kind == 0)
        send_noise(fake, call);
    else
        send_wrong(call, &step, kind);
}

static void on_stats(struct ft_rpc_call *call, void *service, struct ft_str message) {
    (void)message;
    send_noise(service, call);
    ft_rpc_call_finish(call, 0, NULL);
}

static const struct ft_rpc_method k_methods[] = {
    {.path = FT_WIRE_DRAFT_SERVICE "Describe", .kind = FT_RPC_UNARY, .on_message = on_describe},
    {.path = FT_WIRE_DRAFT_SERVICE "Attach", .kind = FT_RPC_UNARY, .on_message = on_attach},
    {.path = FT_WIRE_DRAFT_SERVICE "GetStats", .kind = FT_RPC_UNARY, .on_message = on_stats},
    {.path = FT_WIRE_DRAFT_SERVICE "DraftStep", .kind = FT_RPC_BIDI, .on_message = on_step},
};

static bool test_is_done(void) {
    struct pollfd socket = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&socket, 1, 0) != 0;
}

static enum ft_code serve(struct fake_draft *fake, const char *endpoint, struct ft_err *err) {
    struct ft_rpc_loop *loop = NULL;
    struct ft_rpc_server *server = NULL;
    struct ft_rpc_server_opts opts = {.methods = k_methods, .n_methods = 4, .service = fake};
    enum ft_code code = ft_rpc_loop_create(&loop, 0, err);
    if (code == FT_OK)
        code = ft_rpc_server_create(&server, loop, &opts, err);
    if (code == FT_OK)
        code = ft_rpc_server_listen(server, endpoint, NULL, err);
    if (code == FT_OK)
        code = ft_rpc_server_start(server, err);
    if (code == FT_OK && write(STDIN_FILENO, FAKE_DRAFT_READY, sizeof FAKE_DRAFT_READY) > 0) {
        while (!test_is_done())
            ft_rpc_loop_step(loop, ft_clock_now_ns() + 10000000);
    }
    ft_rpc_server_close(&server, 0);
    ft_rpc_loop_destroy(&loop);
    return code;
}

int main(int argc, char **argv) {
    static char describe[FAKE_DRAFT_DESCRIBE_MAX];
    uint64_t seed = ft_clock_random_u64();
    struct fake_draft fake = {.seed = seed, .kind_first = seed % KINDS};
    struct ft_err err = {0};
    ssize_t n = argc == 2 ? read(STDIN_FILENO, describe, sizeof describe) : -1;
    if (n <= 0) {
        fprintf(stderr, "usage: fake_draft_process ENDPOINT, started by fake_draft_start\n");
        return 64;
    }
    struct ft_str message = {describe, (size_t)n};
    fake.identity = ft_arena_create(4096, 0);
    fake.scratch = ft_arena_create(4096, 0);
    ft_buf_init(&fake.bytes, 0);
    ft_buf_add_str(&fake.bytes, message);
    enum ft_code code = ft_wire_decode_describe(message, fake.identity, &fake.describe, &err);
    if (code == FT_OK)
        code = serve(&fake, argv[1], &err);
    if (code != FT_OK)
        fprintf(stderr, "fake_draft_process: %s\n", err.text);
    else if (write(STDIN_FILENO, &fake.n_steps, sizeof fake.n_steps) < 0)
        perror("fake_draft_process");
    ft_region_close(&fake.region);
    ft_arena_destroy(&fake.identity);
    ft_arena_destroy(&fake.scratch);
    ft_buf_fini(&fake.bytes);
    return code == FT_OK ? 0 : 1;
}
