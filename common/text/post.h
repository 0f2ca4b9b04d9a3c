/* post: the post_processor of tokenizer.json, which puts BOS before a text.
 * Owns:    its ids, from init to fini.
 * Runs in: coordinator, workers (at open).
 * Never:   treats pairs of texts. */
#ifndef FT_TEXT_POST_H
#define FT_TEXT_POST_H

#include <jansson.h>

#include "common/text/tokenizer.h"
#include "common/text/vocab.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_post {
    bool given; /* false: the file says nothing of BOS */
    struct ft_ids before, after;
};

/* in    json  null, ByteLevel, TemplateProcessing or a Sequence of them
 * fail FT_E_PROC_MODEL names the component */
enum ft_code ft_post_init(struct ft_post *post, const json_t *json, const struct ft_vocab *vocab,
                          struct ft_err *err);
void ft_post_fini(struct ft_post *post);

#ifdef __cplusplus
}
#endif
#endif
