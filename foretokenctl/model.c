#include <inttypes.h>
#include <stddef.h>

#include "foretokenctl/commands.h"
#include "foretokenctl/exit.h"
#include "foretokenctl/fields.h"
#include "foretokenctl/session.h"

#define MODEL(kind, name, member)                                                                  \
    { name, kind, offsetof(struct ft_wire_model, member) }
static const struct ctl_field model_fields[] = {
    MODEL(CTL_STR, "name", name),
    MODEL(CTL_STR, "architecture", architecture),
    MODEL(CTL_U32, "vocab_size", vocab_size),
    MODEL(CTL_U32, "max_model_len", max_model_len),
    MODEL(CTL_U64, "num_parameters", n_parameters),
    MODEL(CTL_U64, "weight_bytes", weight_bytes),
    MODEL(CTL_STR, "dtype", dtype),
    MODEL(CTL_STR, "backend", backend),
    MODEL(CTL_STR, "tokenizer_fingerprint", tokenizer_fingerprint),
};
#define INFO(kind, name)                                                                           \
    { #name, kind, offsetof(struct ft_wire_model_info, name) }
static const struct ctl_field info_fields[] = {
    INFO(CTL_STR, version),
    INFO(CTL_STR, speculation),
    INFO(CTL_STR, speculation_reason),
    INFO(CTL_U32, num_speculative_tokens),
    INFO(CTL_STR, rejection_sample_method),
    INFO(CTL_U32, max_model_len),
    INFO(CTL_STR, chat_format),
};
#define N_OF(array) (sizeof(array) / sizeof(array)[0])

static void add_json(struct ft_buf *out, const struct ft_wire_model_info *info) {
    ft_buf_add_c(out, "{");
    ctl_fields_json(out, info_fields, N_OF(info_fields), info);
    ft_buf_add_c(out, ",\"eos_token_ids\":");
    ctl_print_json_ids(out, info->eos_token_ids, info->n_eos_token_ids);
    ft_buf_add_c(out, ",\"target\":{");
    ctl_fields_json(out, model_fields, N_OF(model_fields), &info->target);
    ft_buf_add_c(out, "},\"draft\":");
    if (info->has_draft) {
        ft_buf_add_c(out, "{");
        ctl_fields_json(out, model_fields, N_OF(model_fields), &info->draft);
        ft_buf_add_c(out, "}");
    } else {
        ft_buf_add_c(out, "null");
    }
    ft_buf_add_c(out, "}\n");
}

static void add_text(struct ft_buf *out, const struct ft_wire_model_info *info) {
    ctl_fields_text(out, "", info_fields, N_OF(info_fields), info);
    ctl_fields_name(out, "", "eos_token_ids");
    for (size_t i = 0; i < info->n_eos_token_ids; i++)
        ft_buf_addf(out, "%s%" PRId32, i == 0 ? "" : " ", info->eos_token_ids[i]);
    ft_buf_add_c(out, "\n");
    ctl_fields_text(out, "target", model_fields, N_OF(model_fields), &info->target);
    if (info->has_draft)
        ctl_fields_text(out, "draft", model_fields, N_OF(model_fields), &info->draft);
}

static int render(struct ctl_session *session, bool json, struct ft_buf *out) {
    struct ft_wire_model_info info;
    struct ft_err err = {0};
    if (ft_wire_decode_model_info(ft_buf_str(&session->reply), session->arena, &info, &err) !=
        FT_OK)
        return ctl_exit_because(CTL_EXIT_PROTOCOL, err.text);
    if (json)
        add_json(out, &info);
    else
        add_text(out, &info);
    return CTL_EXIT_OK;
}

int ctl_model_run(struct ctl_options *opts) {
    return ctl_session_show(opts, FT_WIRE_INFERENCE_SERVICE "GetModelInfo", NULL, render);
}
