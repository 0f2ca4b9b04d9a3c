/* tokenizer.json: what opens must encode and decode. */
#include <unistd.h>

#include "common/text/tokenizer.h"
#include "fuzz/target.h"

static char g_dir[64];

static void remove_folder(void) {
    char path[128];
    snprintf(path, sizeof path, "%s/tokenizer.json", g_dir);
    unlink(path);
    rmdir(g_dir);
}

/* Memory, where there is such a file system: an input is a file. */
static void write_file(const uint8_t *data, size_t size) {
    char path[128];
    if (g_dir[0] == 0) {
        snprintf(g_dir, sizeof g_dir, "%s/foretoken-fuzz-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        MUST(mkdtemp(g_dir) != NULL);
        atexit(remove_folder);
    }
    snprintf(path, sizeof path, "%s/tokenizer.json", g_dir);
    FILE *file = fopen(path, "w");
    MUST(file != NULL);
    MUST(fwrite(data, 1, size, file) == size);
    MUST(fclose(file) == 0);
}

static void use(struct ft_tokenizer *tokenizer, const char *text) {
    for (int special = 0; special < 2; special++) {
        struct ft_encode_opts opts = {.add_special = special != 0, .parse_special = special != 0};
        struct ft_ids ids = {0};
        struct ft_err err = {0};
        struct ft_buf out;
        enum ft_code code = ft_tokenizer_encode(tokenizer, ft_str_c(text), &opts, &ids, &err);
        if (code != FT_OK)
            must_refuse_well(code, &err);
        for (size_t i = 0; i < ids.len; i++)
            MUST(ids.ptr[i] >= 0 && ids.ptr[i] < ft_tokenizer_vocab_size(tokenizer));
        ft_buf_init(&out, 0);
        ft_tokenizer_decode(tokenizer, ids.ptr, ids.len, special != 0, &out);
        ft_buf_fini(&out);
        ft_ids_fini(&ids);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const texts[] = {"", "Hello, world! 1234\n\n  x",
                                        "\xC3\xA9\xE4\xB8\xAD e\xCC\x81", "<s>aaab<|eot_id|> b"};
    struct ft_tokenizer *tokenizer = NULL;
    struct ft_err err = {0};
    write_file(data, size);
    enum ft_code code = ft_tokenizer_open(&tokenizer, g_dir, &err);
    if (code != FT_OK)
        must_refuse_well(code, &err);
    for (size_t i = 0; code == FT_OK && i < sizeof texts / sizeof texts[0]; i++)
        use(tokenizer, texts[i]);
    ft_tokenizer_close(&tokenizer);
    return 0;
}
