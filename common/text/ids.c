#include <stdlib.h>
#include <string.h>

#include "common/text/tokenizer.h"

#define CAP_MIN 64

void ft_ids_fini(struct ft_ids *ids) {
    free(ids->ptr);
    *ids = (struct ft_ids){0};
}

enum ft_code ft_ids_push(struct ft_ids *ids, const int32_t *ptr, size_t n) {
    if (n > ids->cap - ids->len) {
        if (n > SIZE_MAX / sizeof *ptr / 4 - ids->len)
            return FT_E_PROC_MEMORY;
        size_t cap = ids->cap < CAP_MIN ? CAP_MIN : ids->cap * 2;
        if (cap < ids->len + n)
            cap = ids->len + n;
        int32_t *grown = realloc(ids->ptr, cap * sizeof *grown);
        if (grown == NULL)
            return FT_E_PROC_MEMORY;
        ids->ptr = grown;
        ids->cap = cap;
    }
    if (n != 0)
        memcpy(ids->ptr + ids->len, ptr, n * sizeof *ptr);
    ids->len += n;
    return FT_OK;
}
