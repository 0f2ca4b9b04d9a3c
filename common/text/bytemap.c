#include "common/text/bytemap.h"

#include "common/text/utf8.h"

/* Printable Latin-1 bytes stand for themselves (GPT-2's choice). */
static bool is_own_char(uint32_t c) {
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}

/* The others are numbered from U+0100 on, in order of byte: 00..20, 7F..A0, AD. */
static int byte_of(uint32_t code) {
    if (is_own_char(code))
        return (int)code;
    if (code >= 0x100 && code <= 0x120)
        return (int)(code - 0x100);
    if (code >= 0x121 && code <= 0x142)
        return (int)(code - 0x121 + 0x7F);
    return code == 0x143 ? 0xAD : -1;
}

bool ft_bytemap_decode(struct ft_str content, char *bytes, size_t *n_bytes) {
    size_t n_out = 0;
    for (size_t i = 0; i < content.len;) {
        size_t n;
        int byte = byte_of(ft_utf8_get((struct ft_str){content.ptr + i, content.len - i}, &n));
        if (byte < 0)
            return false;
        bytes[n_out++] = (char)byte;
        i += n;
    }
    *n_bytes = n_out;
    return true;
}
