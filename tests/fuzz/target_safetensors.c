/* The header of a safetensors file, and the file behind it. */
#include "common/model/safetensors.h"
#include "fuzz/target.h"

static void check_promises(const struct ft_safetensors *f, const char *file, size_t size) {
    uint64_t at = 0;
    volatile unsigned char sum = 0;
    for (size_t i = 0; i < f->n_entries; i++) {
        const struct ft_safetensors_entry *e = &f->entries[i];
        MUST(e->begin <= size && e->bytes <= size - e->begin);
        MUST(i == 0 || e->begin == at);
        for (uint64_t k = 0; k < e->bytes; k++)
            sum = (unsigned char)(sum + (unsigned char)file[e->begin + k]);
        at = e->begin + e->bytes;
    }
    MUST(f->n_entries == 0 || at == size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *file = exact_copy(data, size);
    struct ft_safetensors out;
    struct ft_err err = {0};
    enum ft_code code =
        ft_safetensors_parse(&out, "x", (const unsigned char *)file, size, size, &err);
    if (code == FT_OK) {
        check_promises(&out, file, size);
        ft_arena_destroy(&out.arena);
    } else {
        must_refuse_well(code, &err);
    }
    free(file);
    return 0;
}
