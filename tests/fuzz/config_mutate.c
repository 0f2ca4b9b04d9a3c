#include "fuzz/config_mutate.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"

/* splitmix64 */
uint32_t mutate_below(struct mutate_rng *rng, size_t n) {
    uint64_t x = rng->state += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t)((x ^ (x >> 31)) % n);
}

static const char *const k_words[] = {"0",
                                      "1",
                                      "-1",
                                      "2",
                                      "255",
                                      "4294967296",
                                      "2147483648",
                                      "9223372036854775807",
                                      "-9223372036854775808",
                                      "1e308",
                                      "0.5",
                                      "-0.0",
                                      "true",
                                      "false",
                                      "null",
                                      "[]",
                                      "{}",
                                      "\"\"",
                                      "[[",
                                      "\"F32\"",
                                      "\"BF16\"",
                                      "\"llama3\"",
                                      "\"yarn\"",
                                      "\"linear\"",
                                      "[1,2,3]",
                                      "8589934592",
                                      "\"dtype\":"};
#define N_WORDS (sizeof k_words / sizeof k_words[0])

/* Replace [at, at + n_old) by n_new bytes of word, as far as cap allows. */
static size_t splice(char *text, size_t len, size_t cap, size_t at, size_t n_old,
                     const char *word) {
    size_t n_new = strlen(word);
    if (len - n_old + n_new > cap)
        return len;
    memmove(text + at + n_new, text + at + n_old, len - at - n_old);
    memcpy(text + at, word, n_new);
    return len - n_old + n_new;
}

/* The number or word around or behind at gives way to another. */
static size_t replace_word(struct mutate_rng *rng, char *text, size_t len, size_t cap, size_t at) {
    while (at < len && !isalnum((unsigned char)text[at]))
        at++;
    size_t end = at;
    while (end < len && (isalnum((unsigned char)text[end]) || text[end] == '.'))
        end++;
    return splice(text, len, cap, at, end - at, k_words[mutate_below(rng, N_WORDS)]);
}

static size_t mutate_once(struct mutate_rng *rng, char *text, size_t len, size_t cap) {
    size_t at = mutate_below(rng, len);
    size_t n = 1 + mutate_below(rng, 32);
    n = n < len - at ? n : len - at;
    switch (mutate_below(rng, 8)) {
    case 0:
        text[at] = (char)(text[at] ^ (1 << mutate_below(rng, 8)));
        return len;
    case 1:
        text[at] = "{}[]\",:0919-.e "[mutate_below(rng, 15)];
        return len;
    case 2: /* drop a few bytes */
        memmove(text + at, text + at + n, len - at - n);
        return len - n;
    case 3: /* repeat a few bytes */
        if (len + n > cap)
            return len;
        memmove(text + at + n, text + at, len - at);
        return len + n;
    case 4: /* cut the tail, rarely: nothing behind it is tested then */
        return mutate_below(rng, 8) == 0 ? at : len;
    default:
        return replace_word(rng, text, len, cap, at);
    }
}

size_t mutate_json(struct mutate_rng *rng, char *text, size_t len, size_t cap) {
    for (uint32_t n = 1 + mutate_below(rng, 4); n > 0 && len > 0; n--)
        len = mutate_once(rng, text, len, cap);
    return len;
}

int64_t mutate_deadline_ns(void) {
    const char *seconds = getenv("FORETOKEN_FUZZ_SECONDS");
    return ft_clock_now_ns() + (seconds == NULL ? 2 : atoll(seconds)) * 1000000000;
}
