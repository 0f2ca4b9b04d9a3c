/* library: functions of a shared library that may be missing where the program runs.
 * Owns:    nothing: what dlopen gave stays open until the process ends.
 * Runs in: every process, once at start.
 * Never:   calls what it found. */
#ifndef FT_BASE_LIBRARY_H
#define FT_BASE_LIBRARY_H

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The function `name` into *slot, a pointer to a function. ISO C has no conversion to one from a
 * pointer to data; POSIX has this one. */
static inline bool ft_library_find(void *library, const char *name, void *slot) {
    void *symbol = dlsym(library, name);
    memcpy(slot, &symbol, sizeof symbol);
    return symbol != NULL;
}

#ifdef __cplusplus
}
#endif
#endif
