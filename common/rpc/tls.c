#include "common/rpc/tls.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/rpc/pem.h"

#define MODULE "tls"

enum { CERT, KEY, CLIENT_CA, N_FILES };

struct ft_rpc_tls {
    char *paths[N_FILES]; /* [CLIENT_CA] NULL: clients are not asked */
    struct ft_file_stamp stamps[N_FILES];
    int64_t expires_s;
    pthread_mutex_t mutex; /* guards what follows, which threads of gRPC read */
    struct ft_buf pems[N_FILES];
    uint64_t generation;
};

static struct ft_file_stamp stamp_of(const char *path) {
    return path != NULL ? ft_file_stamp_of(path) : (struct ft_file_stamp){0};
}

static void wipe(struct ft_buf pems[N_FILES]) {
    for (int i = 0; i < N_FILES; i++)
        ft_rpc_pem_wipe(&pems[i]);
}

/* All three files, checked; on failure nothing in force has changed. */
static enum ft_code load(struct ft_rpc_tls *tls, struct ft_err *err) {
    struct ft_buf pems[N_FILES];
    int64_t expires_s = 0;
    for (int i = 0; i < N_FILES; i++)
        ft_buf_init(&pems[i], 0);
    /* Taken before the files are read: what changes meanwhile is a change still to come. */
    for (int i = 0; i < N_FILES; i++)
        tls->stamps[i] = stamp_of(tls->paths[i]);
    enum ft_code code = ft_rpc_pem_read_pair(tls->paths[CERT], tls->paths[KEY], &pems[CERT],
                                             &pems[KEY], &expires_s, err);
    if (code == FT_OK && tls->paths[CLIENT_CA] != NULL)
        code = ft_rpc_pem_read_ca(tls->paths[CLIENT_CA], &pems[CLIENT_CA], err);
    if (code != FT_OK) {
        wipe(pems);
        return code;
    }
    tls->expires_s = expires_s;
    pthread_mutex_lock(&tls->mutex);
    wipe(tls->pems);
    memcpy(tls->pems, pems, sizeof pems);
    tls->generation++;
    pthread_mutex_unlock(&tls->mutex);
    return FT_OK;
}

static bool copy_path(char **out, const char *path) {
    *out = path != NULL && path[0] != 0 ? strdup(path) : NULL;
    return path == NULL || path[0] == 0 || *out != NULL;
}

enum ft_code ft_rpc_tls_create(struct ft_rpc_tls **out, const struct ft_rpc_tls_files *files,
                               struct ft_err *err) {
    struct ft_rpc_tls *tls = calloc(1, sizeof *tls);
    if (tls == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for certificates");
    pthread_mutex_init(&tls->mutex, NULL);
    enum ft_code code = FT_OK;
    if (!copy_path(&tls->paths[CERT], files->cert) || !copy_path(&tls->paths[KEY], files->key) ||
        !copy_path(&tls->paths[CLIENT_CA], files->client_ca))
        code = ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for certificates");
    else if (tls->paths[CERT] == NULL || tls->paths[KEY] == NULL)
        code = ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "a certificate and its key go together");
    else
        code = load(tls, err);
    if (code != FT_OK) {
        ft_rpc_tls_destroy(&tls);
        return code;
    }
    *out = tls;
    return FT_OK;
}

enum ft_code ft_rpc_tls_reload(struct ft_rpc_tls *tls, bool *changed, struct ft_err *err) {
    *changed = false;
    for (int i = 0; i < N_FILES; i++) {
        struct ft_file_stamp now = stamp_of(tls->paths[i]);
        *changed = *changed || !ft_file_stamp_eq(&now, &tls->stamps[i]);
    }
    return *changed ? load(tls, err) : FT_OK;
}

int64_t ft_rpc_tls_expires_s(const struct ft_rpc_tls *tls) {
    return tls->expires_s;
}

void ft_rpc_tls_destroy(struct ft_rpc_tls **tls) {
    struct ft_rpc_tls *t = *tls;
    if (t == NULL)
        return;
    *tls = NULL;
    wipe(t->pems);
    for (int i = 0; i < N_FILES; i++)
        free(t->paths[i]);
    pthread_mutex_destroy(&t->mutex);
    free(t);
}

/* ---- what gRPC is given ---------------------------------------------------------------------- */

/* gRPC asks at each new connection, and keeps what it has when nothing is new. */
static grpc_ssl_certificate_config_reload_status
fetch(void *user, grpc_ssl_server_certificate_config **config) {
    struct ft_rpc_tls_feed *feed = user;
    struct ft_rpc_tls *tls = feed->tls;
    grpc_ssl_certificate_config_reload_status status = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    pthread_mutex_lock(&tls->mutex);
    if (feed->generation != tls->generation) {
        grpc_ssl_pem_key_cert_pair pair = {tls->pems[KEY].ptr, tls->pems[CERT].ptr};
        /* Core insists on authorities even where it asks clients for nothing. */
        const char *ca = tls->pems[tls->paths[CLIENT_CA] != NULL ? CLIENT_CA : CERT].ptr;
        *config = grpc_ssl_server_certificate_config_create(ca, &pair, 1);
        feed->generation = tls->generation;
        status = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
    }
    pthread_mutex_unlock(&tls->mutex);
    return status;
}

grpc_server_credentials *ft_rpc_tls_server_credentials(struct ft_rpc_tls_feed *feed) {
    grpc_ssl_client_certificate_request_type request =
        feed->tls->paths[CLIENT_CA] != NULL
            ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
            : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(request, fetch, feed));
}

static bool is_set(const char *text) {
    return text != NULL && text[0] != 0;
}

enum ft_code ft_rpc_tls_client_credentials(grpc_channel_credentials **out,
                                           const struct ft_rpc_client_tls *files,
                                           struct ft_err *err) {
    struct ft_buf pems[N_FILES];
    int64_t expires_s;
    for (int i = 0; i < N_FILES; i++)
        ft_buf_init(&pems[i], 0);
    bool has_pair = is_set(files->cert) || is_set(files->key);
    enum ft_code code = is_set(files->ca) ? ft_rpc_pem_read_ca(files->ca, &pems[CLIENT_CA], err)
                                          : ft_rpc_pem_read_system_ca(&pems[CLIENT_CA], err);
    if (code == FT_OK && has_pair && !(is_set(files->cert) && is_set(files->key)))
        code = ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "a certificate and its key go together");
    else if (code == FT_OK && has_pair)
        code =
            ft_rpc_pem_read_pair(files->cert, files->key, &pems[CERT], &pems[KEY], &expires_s, err);
    if (code == FT_OK) {
        grpc_ssl_pem_key_cert_pair pair = {pems[KEY].ptr, pems[CERT].ptr};
        *out = grpc_ssl_credentials_create_ex(pems[CLIENT_CA].ptr, has_pair ? &pair : NULL, NULL,
                                              NULL);
    }
    wipe(pems);
    return code;
}
