/* normalizer: the normalizer of tokenizer.json.
 * Owns:    nothing.
 * Runs in: coordinator, workers (at open).
 * Never:   accepts a kind that it does not run exactly. */
#ifndef FT_TEXT_NORMALIZER_H
#define FT_TEXT_NORMALIZER_H

#include <jansson.h>

#include "common/text/norm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FT_NORMALIZER_FORMS_MAX 4

struct ft_normalizer {
    enum ft_norm_form forms[FT_NORMALIZER_FORMS_MAX];
    size_t n_forms; /* 0: text stays as it is */
};

/* in    json  null, NFC, NFD, NFKC, NFKD or a Sequence of them
 * fail FT_E_PROC_MODEL names the component */
enum ft_code ft_normalizer_init(struct ft_normalizer *normalizer, const json_t *json,
                                struct ft_err *err);
/* Append text (valid UTF-8), normalised. fail FT_E_PROC_MEMORY */
enum ft_code ft_normalizer_run(const struct ft_normalizer *normalizer, struct ft_str text,
                               struct ft_buf *out);

#ifdef __cplusplus
}
#endif
#endif
