#include "common/gpu/device.h"

#include <stdio.h>
#include <string.h>

#include "common/gpu/kinds.h"

const struct ft_device_kind *ft_device_kind_at(size_t idx) {
    size_t n = 0;
    while (ft_device_kinds[n] != NULL)
        n++;
    return idx < n ? ft_device_kinds[idx] : NULL;
}

/* The kind that spec names, NULL with err set; what follows its name to variant. */
static const struct ft_device_kind *find_kind(const char *spec, const char **variant,
                                              struct ft_err *err) {
    size_t len = strcspn(spec, ":");
    char known[64] = "";
    *variant = spec[len] == ':' ? spec + len + 1 : "";
    for (size_t i = 0; ft_device_kinds[i] != NULL; i++) {
        const char *name = ft_device_kinds[i]->name;
        if (strlen(name) == len && memcmp(name, spec, len) == 0)
            return ft_device_kinds[i];
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s\"%s\"", i == 0 ? "" : ", ", name);
    }
    ft_err_set(err, FT_E_PROC_CONFIG, "device", "device is \"%s\"; this build has %s", spec, known);
    return NULL;
}

enum ft_code ft_device_check(const char *spec, struct ft_err *err) {
    const char *variant;
    const struct ft_device_kind *kind = find_kind(spec, &variant, err);
    return kind == NULL ? FT_E_PROC_CONFIG : kind->check(variant, err);
}

enum ft_code ft_device_open(struct ft_device **out, const char *spec,
                            const struct ft_device_opts *opts, struct ft_err *err) {
    const char *variant;
    const struct ft_device_kind *kind = find_kind(spec, &variant, err);
    return kind == NULL ? FT_E_PROC_CONFIG : kind->open(out, variant, opts, err);
}

void ft_device_close(struct ft_device **device) {
    if (*device == NULL)
        return;
    (*device)->kind->close(*device);
    *device = NULL;
}
