#include "common/kv/kvlayout.h"

#include <stddef.h>
#include <string.h>

static int32_t paged_block(int32_t len_max, int32_t page_tokens) {
    (void)len_max;
    return page_tokens;
}

static int32_t slotted_block(int32_t len_max, int32_t page_tokens) {
    return ((len_max - 1) / page_tokens + 1) * page_tokens;
}

static const struct ft_kvlayout k_layouts[] = {
    {.name = "paged", .shares_blocks = true, .block_tokens = paged_block},
    {.name = "slotted", .shares_blocks = false, .block_tokens = slotted_block},
};

const struct ft_kvlayout *ft_kvlayout_find(const char *name) {
    for (size_t i = 0; i < sizeof k_layouts / sizeof k_layouts[0]; i++)
        if (strcmp(k_layouts[i].name, name) == 0)
            return &k_layouts[i];
    return NULL;
}
