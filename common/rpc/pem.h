/* pem: certificate files, read and checked before gRPC sees them: it would not say what is wrong.
 * Owns:    nothing; fills buffers of the caller.
 * Runs in: every process; the loop thread only.
 * Never:   asks for a password; is included from outside common/rpc. */
#ifndef FT_RPC_PEM_H
#define FT_RPC_PEM_H

#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Append path's bytes to out: certificates of authorities, at least one.
 * fail FT_E_PROC_CONFIG naming the file */
enum ft_code ft_rpc_pem_read_ca(const char *path, struct ft_buf *out, struct ft_err *err);
/* A certificate (the first of its file) that is in its time, and the key that belongs to it.
 * out   expires_s  seconds since 1970
 * fail  FT_E_PROC_CONFIG naming the file */
enum ft_code ft_rpc_pem_read_pair(const char *cert_path, const char *key_path, struct ft_buf *cert,
                                  struct ft_buf *key, int64_t *expires_s, struct ft_err *err);
/* The list of authorities that this system trusts. fail FT_E_PROC_CONFIG: none was found */
enum ft_code ft_rpc_pem_read_system_ca(struct ft_buf *out, struct ft_err *err);
/* Free buf, overwritten. */
void ft_rpc_pem_wipe(struct ft_buf *buf);

#ifdef __cplusplus
}
#endif
#endif
