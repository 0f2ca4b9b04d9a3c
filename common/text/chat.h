/* chat: the Llama-3 and ChatML prompt formats.
 * Owns:    nothing.
 * Runs in: coordinator.
 * Never:   runs a template language; a model with another format is refused for chat input. */
#ifndef FT_TEXT_CHAT_H
#define FT_TEXT_CHAT_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/text/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ft_chat_format { FT_CHAT_NONE, FT_CHAT_LLAMA3, FT_CHAT_CHATML };

struct ft_chat_message {
    struct ft_str role;
    struct ft_str content;
};

/* From the special tokens that the vocabulary has: <|start_header_id|>, <|end_header_id|> and
 * <|eot_id|>, or <|im_start|> and <|im_end|>; a chat_template in tokenizer_config.json (or
 * chat_template.jinja) decides when both are there. */
enum ft_chat_format ft_chat_detect(const struct ft_tokenizer *tokenizer, const char *model_dir);
const char *ft_chat_name(enum ft_chat_format format); /* "llama3", "chatml", "" */
/* Token that ends a turn in this format, -1 for NONE: a stop token for chat input. */
int32_t ft_chat_end_of_turn(enum ft_chat_format format, const struct ft_tokenizer *tokenizer);

/* Append the ids of the rendered messages and of the header that asks for the assistant's turn.
 * Content is tokenized without parsing special tokens, so that a user cannot forge a turn.
 * fail FT_E_REQ_INVALID: unknown role, not UTF-8, no messages; FT_E_REQ_UNSUPPORTED: NONE. */
enum ft_code ft_chat_encode(enum ft_chat_format format, struct ft_tokenizer *tokenizer,
                            const struct ft_chat_message *messages, size_t n_messages,
                            size_t tokens_max, struct ft_ids *out, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
