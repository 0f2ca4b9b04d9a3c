/* An ini file, as foretoken.conf is one. */
#include "common/base/conf.h"
#include "fuzz/target.h"

static enum ft_code on_key(void *user, const char *section, const char *key, const char *value,
                           struct ft_err *err) {
    size_t *n = user;
    MUST(section != NULL && key != NULL && value != NULL);
    *n += strlen(section) + strlen(key) + strlen(value);
    if (strcmp(key, "bad") == 0)
        return ft_err_set(err, FT_E_PROC_CONFIG, "fuzz", "bad is not wanted");
    return FT_OK;
}

static void on_problem(void *user, const struct ft_err *err) {
    (void)user;
    MUST(strlen(err->text) > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (int strict = 0; strict < 2; strict++) {
        size_t n = 0;
        char *text = exact_copy(data, size);
        struct ft_err err = {0};
        struct ft_conf_reader reader = {.name = "FILE", .on_key = on_key, .user = &n};
        if (strict == 0)
            reader.on_problem = on_problem;
        enum ft_code code = ft_conf_read_text(&reader, (struct ft_str){text, size}, &err);
        if (code != FT_OK)
            must_refuse_well(code, &err);
        free(text);
    }
    return 0;
}
