/* config_rope: rotary embedding: its keys in config.json and the frequencies that follow.
 * Owns:    nothing.
 * Runs in: workers, coordinator; at start.
 * Never:   approximates a rope type, or skips a key of one, that it does not know. */
#ifndef FT_MODEL_CONFIG_ROPE_H
#define FT_MODEL_CONFIG_ROPE_H

#include "common/model/config.h"
#include "common/model/config_read.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fill the rope fields of config from rope_parameters, or from rope_theta and rope_scaling as
 * older files have it. fail FT_E_PROC_MODEL */
enum ft_code ft_config_rope_read(const struct ft_config_reader *reader,
                                 struct ft_model_config *config, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
