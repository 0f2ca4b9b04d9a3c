/* test_tokenizer_fixture: small tokenizers, made from the fixture's tokenizer.json and changed.
 * Owns:    nothing that outlives a call, besides temporary folders.
 * Runs in: tests of common/text.
 * Never:   returns a failure where the name does not say "try": the test fails with the reason. */
#ifndef FT_TEST_TOKENIZER_FIXTURE_H
#define FT_TEST_TOKENIZER_FIXTURE_H

#include <jansson.h>

#include "common/text/tokenizer.h"

/* ids 0..255 are bytes, 256 <|begin_of_text|>, 257 <|end_of_text|>, 258 <|eot_id|>, 264 tokens;
 * Llama-3's regex. The caller changes it and gives it to one of the open functions. */
json_t *tokenizer_json(void);
/* Add merges {"h", "e"}, {"he", "l"}, ...; results get the ids from 264 on. A NULL ends the list.
 */
void add_merges(json_t *root, const char *const (*merges)[2], bool pairs);
/* Replace the field at a path like "model.vocab"; takes value. */
void set_field(json_t *root, const char *path, json_t *value);
json_t *parse(const char *json);

/* Both take root. config is written as tokenizer_config.json unless it is NULL. */
struct ft_tokenizer *open_json(json_t *root, const char *config);
enum ft_code try_open_json(json_t *root, const char *config, struct ft_tokenizer **out,
                           struct ft_err *err);

/* ids as text: "256 97 98". */
const char *encode_text(struct ft_tokenizer *tokenizer, struct ft_str text, bool add_special,
                        bool parse_special);
/* The pieces that text becomes when each is one token: "a| b|c", with the bytes of the tokens. */
const char *encode_pieces(struct ft_tokenizer *tokenizer, struct ft_str text);

#endif
