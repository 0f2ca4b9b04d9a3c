/* Messages as peers and clients send them; the first byte says which. */
#include "common/wire/health.h"
#include "common/wire/reflection.h"
#include "common/wire/vllm_engine.h"
#include "fuzz/target.h"
#include "unit/test_wire_samples.h"

#define ARENA_MAX ((size_t)64 << 20)

typedef enum ft_code (*read_fn)(struct ft_str in, struct ft_arena *arena, struct ft_buf *text,
                                struct ft_err *err);

static enum ft_code read_health(struct ft_str in, struct ft_arena *arena, struct ft_buf *text,
                                struct ft_err *err) {
    struct ft_str service;
    enum ft_wire_health status;
    enum ft_code code = ft_wire_decode_health_request(in, arena, &service, err);
    if (code == FT_OK)
        ft_buf_add_str(text, service);
    return code == FT_OK ? ft_wire_decode_health(in, arena, &status, err) : code;
}

static enum ft_code read_reflection(struct ft_str in, struct ft_arena *arena, struct ft_buf *text,
                                    struct ft_err *err) {
    static struct ft_wire_schema schema;
    if (schema.n_files == 0)
        MUST(ft_wire_schema_read(&schema, ft_wire_schema_builtin(), err) == FT_OK);
    return ft_wire_reflection_answer(&schema, in, arena, text, err);
}

/* The bytes as descriptors: what is no set is refused, and none is read past its end. */
static enum ft_code read_schema(struct ft_str in, struct ft_arena *arena, struct ft_buf *text,
                                struct ft_err *err) {
    struct ft_wire_schema schema;
    (void)arena;
    enum ft_code code = ft_wire_schema_read(&schema, in, err);
    for (int32_t i = 0; code == FT_OK && i < schema.n_files; i++) {
        MUST((schema.files[i].closure >> i & 1) != 0);
        ft_wire_schema_service(&schema, i, 0, text);
        ft_wire_schema_find_symbol(&schema, schema.files[i].name);
        ft_wire_schema_find_symbol(&schema, ft_str_c("a.b.c.d"));
    }
    if (code ==
        FT_E_PROC_INTERNAL) /* of descriptors of our own; the others name the peer's fault */
        return err->code = FT_E_REQ_INVALID;
    return code;
}

static enum ft_code read_vllm_generate(struct ft_str in, struct ft_arena *arena,
                                       struct ft_buf *text, struct ft_err *err) {
    struct ft_wire_generate out;
    enum ft_code code = ft_wire_decode_vllm_generate(in, arena, &out, err);
    if (code == FT_OK)
        ft_wire_encode_generate(&out, text); /* reads every field */
    return code;
}

static enum ft_code read_vllm_abort(struct ft_str in, struct ft_arena *arena, struct ft_buf *text,
                                    struct ft_err *err) {
    const struct ft_str *ids;
    size_t n = 0;
    enum ft_code code = ft_wire_decode_vllm_abort(in, arena, &ids, &n, err);
    for (size_t i = 0; code == FT_OK && i < n; i++)
        ft_buf_add_str(text, ids[i]);
    return code == FT_OK ? ft_wire_decode_vllm_loads(in, arena, err) : code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const read_fn others[] = {read_health, read_reflection, read_schema, read_vllm_generate,
                                     read_vllm_abort};
    size_t n_others = sizeof others / sizeof others[0];
    if (size == 0)
        return 0;
    size_t which = data[0] % (n_others + n_wire_samples);
    read_fn read = which < n_others ? others[which] : wire_samples[which - n_others].read;
    char *bytes = exact_copy(data + 1, size - 1);
    struct ft_arena *arena = ft_arena_create(1, ARENA_MAX);
    struct ft_buf text;
    struct ft_err err = {0};
    ft_buf_init(&text, 0);
    enum ft_code code = read((struct ft_str){bytes, size - 1}, arena, &text, &err);
    if (code != FT_OK) {
        must_refuse_well(code, &err);
        MUST(code == FT_E_REQ_INVALID || code == FT_E_REQ_TOO_LARGE || code == FT_E_REQ_EXHAUSTED ||
             code == FT_E_REQ_UNSUPPORTED);
        MUST(ft_utf8_valid_prefix(ft_str_c(err.text)) == strlen(err.text));
    }
    ft_buf_fini(&text);
    ft_arena_destroy(&arena);
    free(bytes);
    return 0;
}
