/* load: the parts of tokenizer.json that fill the vocabulary, the merges and the added tokens.
 * Owns:    nothing; fills what its caller owns.
 * Runs in: coordinator, workers (at open).
 * Never:   ignores a field that would change ids. */
#ifndef FT_TEXT_LOAD_H
#define FT_TEXT_LOAD_H

#include <jansson.h>

#include "common/text/added.h"
#include "common/text/bpe.h"
#include "common/text/normalizer.h"
#include "common/text/vocab.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Each takes one value of the document and fails with FT_E_PROC_MODEL, naming the field. */

/* model: the vocabulary, then its merges into bpe, which the caller gives back on FT_OK. */
enum ft_code ft_load_model(const json_t *model, struct ft_vocab *vocab, struct ft_bpe *bpe,
                           struct ft_err *err);
/* added_tokens: plain ones are sought in the text as it came, the others once it is normalised.
 * The caller gives both lists back, also on failure. */
enum ft_code ft_load_added(const json_t *list, const struct ft_normalizer *normalizer,
                           struct ft_vocab *vocab, struct ft_added *plain,
                           struct ft_added *normalized, struct ft_err *err);

/* decoder: ByteLevel, or a Sequence of it and Fuse. */
enum ft_code ft_load_decoder(const json_t *json, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
