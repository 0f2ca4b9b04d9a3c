/* relax: tell the core that a loop waits for another one.
 * Owns:    nothing.
 * Runs in: any thread.
 * Never:   gives up the core. */
#ifndef FT_GPU_CPU_RELAX_H
#define FT_GPU_CPU_RELAX_H

#if defined(__x86_64__)
static inline void ft_relax(void) {
    __builtin_ia32_pause();
}
#else
static inline void ft_relax(void) {
}
#endif

#endif
