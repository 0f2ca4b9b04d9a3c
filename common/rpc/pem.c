#include "common/rpc/pem.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <time.h>
#include <unistd.h>

#include "common/base/file.h"

#define MODULE "tls"
#define PEM_MAX ((size_t)4 << 20) /* a system's whole list of authorities has some 200 KiB */

static enum ft_code read_file(const char *path, struct ft_buf *out, struct ft_err *err) {
    if (ft_file_read(path, PEM_MAX, out, err) == FT_OK)
        return FT_OK;
    err->code = FT_E_PROC_CONFIG;
    return FT_E_PROC_CONFIG;
}

static enum ft_code refuse(const char *path, const char *why, struct ft_err *err) {
    ERR_clear_error(); /* of this thread; what it says of PEM is no help to an operator */
    return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "%s: %s", path, why);
}

static BIO *open_pem(const struct ft_buf *pem) {
    return pem->len > INT32_MAX ? NULL : BIO_new_mem_buf(pem->ptr, (int)pem->len);
}

static int no_password(char *out, int cap, int writing, void *user) {
    (void)out, (void)cap, (void)writing, (void)user;
    return -1;
}

static X509 *read_cert(const struct ft_buf *pem) {
    BIO *bio = open_pem(pem);
    X509 *cert = bio != NULL ? PEM_read_bio_X509(bio, NULL, no_password, NULL) : NULL;
    BIO_free(bio);
    return cert;
}

static EVP_PKEY *read_key(const struct ft_buf *pem) {
    BIO *bio = open_pem(pem);
    EVP_PKEY *key = bio != NULL ? PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL) : NULL;
    BIO_free(bio);
    return key;
}

static int64_t to_seconds(const ASN1_TIME *time) {
    struct tm tm = {0};
    return time != NULL && ASN1_TIME_to_tm(time, &tm) == 1 ? (int64_t)timegm(&tm) : 0;
}

static enum ft_code check_time(const char *path, const X509 *cert, int64_t *expires_s,
                               struct ft_err *err) {
    char text[32];
    struct tm tm;
    int64_t from_s = to_seconds(X509_get0_notBefore(cert));
    int64_t now_s = (int64_t)time(NULL);
    time_t shown;
    *expires_s = to_seconds(X509_get0_notAfter(cert));
    if (now_s >= from_s && now_s <= *expires_s)
        return FT_OK;
    shown = (time_t)(now_s < from_s ? from_s : *expires_s);
    if (gmtime_r(&shown, &tm) == NULL || strftime(text, sizeof text, "%FT%TZ", &tm) == 0)
        text[0] = 0;
    return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "%s: the certificate is not valid %s %s", path,
                      now_s < from_s ? "before" : "after", text);
}

enum ft_code ft_rpc_pem_read_ca(const char *path, struct ft_buf *out, struct ft_err *err) {
    enum ft_code code = read_file(path, out, err);
    if (code != FT_OK)
        return code;
    X509 *cert = read_cert(out);
    if (cert == NULL)
        return refuse(path, "no PEM certificate in it", err);
    X509_free(cert);
    return FT_OK;
}

static enum ft_code check_pair(const char *cert_path, const char *key_path, const X509 *cert,
                               const struct ft_buf *key_pem, struct ft_err *err) {
    EVP_PKEY *key = read_key(key_pem);
    if (key == NULL)
        return refuse(key_path, "no PEM private key in it, or one that wants a password", err);
    int belongs = X509_check_private_key(cert, key);
    EVP_PKEY_free(key);
    if (belongs == 1)
        return FT_OK;
    ERR_clear_error();
    return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                      "%s: the key does not belong to the certificate %s", key_path, cert_path);
}

enum ft_code ft_rpc_pem_read_pair(const char *cert_path, const char *key_path, struct ft_buf *cert,
                                  struct ft_buf *key, int64_t *expires_s, struct ft_err *err) {
    enum ft_code code = read_file(cert_path, cert, err);
    if (code == FT_OK)
        code = read_file(key_path, key, err);
    if (code != FT_OK)
        return code;
    X509 *x509 = read_cert(cert);
    if (x509 == NULL)
        return refuse(cert_path, "no PEM certificate in it", err);
    code = check_time(cert_path, x509, expires_s, err);
    if (code == FT_OK)
        code = check_pair(cert_path, key_path, x509, key, err);
    X509_free(x509);
    return code;
}

enum ft_code ft_rpc_pem_read_system_ca(struct ft_buf *out, struct ft_err *err) {
    static const char *const paths[] = {"/etc/ssl/certs/ca-certificates.crt", /* Debian, Ubuntu */
                                        "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (access(paths[i], R_OK) == 0)
            return ft_rpc_pem_read_ca(paths[i], out, err);
    return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                      "no list of certificate authorities on this system (%s): name a file of "
                      "them, or install the package ca-certificates",
                      paths[0]);
}

void ft_rpc_pem_wipe(struct ft_buf *buf) {
    if (buf->ptr != NULL)
        OPENSSL_cleanse(buf->ptr, buf->cap);
    ft_buf_fini(buf);
}
