/* The file of bearer tokens. */
#include "coordinator/tokens.h"
#include "fuzz/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = exact_copy(data, size);
    struct co_tokens tokens = {0};
    struct ft_err err = {0};
    enum ft_code code = co_tokens_parse(&tokens, (struct ft_str){text, size}, "FILE", &err);
    if (code != FT_OK) {
        must_refuse_well(code, &err);
        MUST(tokens.rows == NULL);
    } else {
        MUST(tokens.n > 0 && tokens.n <= CO_TOKENS_MAX);
    }
    for (size_t i = 0; i < tokens.n; i++) {
        MUST(strlen(tokens.rows[i].name) > 0);
        MUST(tokens.rows[i].max_requests >= 0 && tokens.rows[i].requests_per_minute >= 0);
        for (size_t k = 0; k < i; k++)
            MUST(strcmp(tokens.rows[i].name, tokens.rows[k].name) != 0);
    }
    MUST(co_tokens_find(&tokens, (struct ft_str){text, size}) ==
         NULL); /* no file is its own token */
    co_tokens_fini(&tokens);
    free(text);
    return 0;
}
