/* arch_window: the keys of sliding-window attention, as each family of architectures means them.
 * Owns:    nothing; fills sliding_window and sliding_window_first_layer of the config.
 * Runs in: workers, coordinator; at start.
 * Never:   drops a window: one that cannot be honoured is refused. */
#ifndef FT_MODEL_ARCH_WINDOW_H
#define FT_MODEL_ARCH_WINDOW_H

#include "common/model/config.h"
#include "common/model/config_read.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All need config->n_layers. fail FT_E_PROC_MODEL. layer_types, where present, must be full
 * attention up to a layer and sliding attention from it on. */

/* No windows: sliding_window must be absent or switched off. */
enum ft_code ft_arch_window_refuse(const struct ft_config_reader *reader,
                                   struct ft_model_config *config, struct ft_err *err);
/* A number in sliding_window applies to all layers, null to none; absent, it is 4096. */
enum ft_code ft_arch_window_read(const struct ft_config_reader *reader,
                                 struct ft_model_config *config, struct ft_err *err);
/* use_sliding_window switches; layer_types, or else max_window_layers, says from which layer. */
enum ft_code ft_arch_window_read_by_layer(const struct ft_config_reader *reader,
                                          struct ft_model_config *config, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
