#include "common/gpu/device.h"

#include <string.h>

#include "common/gpu/cpu/cpu.h"

static const struct ft_device_kind *const kinds[] = {&ft_cpu_device};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

const struct ft_device_kind *ft_device_kind_at(size_t idx) {
    return idx < N_KINDS ? kinds[idx] : NULL;
}

enum ft_code ft_device_open(struct ft_device **out, const char *spec,
                            const struct ft_device_opts *opts, struct ft_err *err) {
    size_t len = strcspn(spec, ":");
    const char *variant = spec[len] == ':' ? spec + len + 1 : "";
    for (size_t i = 0; i < N_KINDS; i++)
        if (strlen(kinds[i]->name) == len && memcmp(kinds[i]->name, spec, len) == 0)
            return kinds[i]->open(out, variant, opts, err);
    return ft_err_set(err, FT_E_PROC_CONFIG, "device", "device is \"%s\"; there is \"%s\"", spec,
                      kinds[0]->name);
}

void ft_device_close(struct ft_device **device) {
    if (*device == NULL)
        return;
    (*device)->kind->close(*device);
    *device = NULL;
}
