#include "common/rpc/endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/str.h"
#include "common/rpc/secure.h"

#define UNIX_PREFIX "unix:"

static enum ft_code parse_unix(struct ft_rpc_endpoint *out, const char *text, struct ft_err *err) {
    const char *path = text + strlen(UNIX_PREFIX);
    size_t len = strlen(path), len_max = sizeof out->path - 1;
    if (len == 0)
        return ft_err_set(err, FT_E_PROC_CONFIG, "rpc", "endpoint '%s': the path is empty", text);
    if (len > len_max)
        return ft_err_set(err, FT_E_PROC_CONFIG, "rpc",
                          "endpoint '%s': the path has %zu bytes, a Unix socket takes at most %zu",
                          text, len, len_max);
    out->is_unix = true;
    memcpy(out->path, path, len + 1);
    snprintf(out->address, sizeof out->address, UNIX_PREFIX "%s", path);
    memcpy(out->target, out->address, sizeof out->target);
    return FT_OK;
}

static enum ft_code parse_port(int *out, const char *text, const char *port, struct ft_err *err) {
    char *end;
    errno = 0;
    long value = strtol(port, &end, 10);
    if (*port < '0' || *port > '9' || *end != '\0' || errno != 0 || value > 65535)
        return ft_err_set(err, FT_E_PROC_CONFIG, "rpc",
                          "endpoint '%s': the port is '%s', wanted a number from 0 to 65535", text,
                          port);
    *out = (int)value;
    return FT_OK;
}

static bool is_host_name(struct ft_str host) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    for (size_t i = 0; i < host.len; i++)
        if (memchr(allowed, host.ptr[i], sizeof allowed - 1) == NULL)
            return false;
    return host.len > 0;
}

static enum ft_code parse_tcp(struct ft_rpc_endpoint *out, const char *text, struct ft_err *err) {
    const char *colon = strrchr(text, ':');
    if (colon == NULL)
        return ft_err_set(err, FT_E_PROC_CONFIG, "rpc",
                          "endpoint '%s': wanted unix:PATH or HOST:PORT", text);
    bool bracketed = text[0] == '[' && colon > text + 1 && colon[-1] == ']';
    struct ft_str host = {text, (size_t)(colon - text)};
    if (bracketed)
        host = (struct ft_str){text + 1, host.len - 2};
    if (host.len >= sizeof out->host)
        return ft_err_set(err, FT_E_PROC_CONFIG, "rpc",
                          "endpoint '%s': the host has %zu bytes, at most %zu", text, host.len,
                          sizeof out->host - 1);
    memcpy(out->host, host.ptr, host.len);
    out->host[host.len] = '\0';
    unsigned char binary[16];
    bool is_ipv4 = !bracketed && inet_pton(AF_INET, out->host, binary) == 1;
    bool is_ipv6 = bracketed && inet_pton(AF_INET6, out->host, binary) == 1;
    if (!is_ipv4 && !is_ipv6 && (bracketed || !is_host_name(host)))
        return ft_err_set(err, FT_E_PROC_CONFIG, "rpc",
                          "endpoint '%s': the host is '%s', wanted a name, an IPv4 address or an "
                          "IPv6 address in brackets",
                          text, out->host);
    enum ft_code code = parse_port(&out->port, text, colon + 1, err);
    if (code != FT_OK)
        return code;
    snprintf(out->address, sizeof out->address, bracketed ? "[%s]:%d" : "%s:%d", out->host,
             out->port);
    snprintf(out->target, sizeof out->target, "%s%.*s",
             is_ipv4   ? "ipv4:"
             : is_ipv6 ? "ipv6:"
                       : "dns:///",
             (int)(sizeof out->target - 9), out->address);
    return FT_OK;
}

enum ft_code ft_rpc_endpoint_parse(struct ft_rpc_endpoint *out, const char *text,
                                   struct ft_err *err) {
    struct ft_rpc_endpoint endpoint = {0};
    enum ft_code code = strncmp(text, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0
                            ? parse_unix(&endpoint, text, err)
                            : parse_tcp(&endpoint, text, err);
    if (code == FT_OK)
        *out = endpoint;
    return code;
}

bool ft_rpc_endpoint_is_local(const struct ft_rpc_endpoint *endpoint) {
    unsigned char binary[16];
    if (endpoint->is_unix || strcmp(endpoint->host, "localhost") == 0)
        return true;
    if (inet_pton(AF_INET, endpoint->host, binary) == 1)
        return binary[0] == 127;
    static const unsigned char loopback[16] = {[15] = 1};
    return inet_pton(AF_INET6, endpoint->host, binary) == 1 && memcmp(binary, loopback, 16) == 0;
}

enum ft_code ft_rpc_endpoint_check(const char *endpoint, bool *is_unix, bool *is_local,
                                   struct ft_err *err) {
    struct ft_rpc_endpoint parsed;
    enum ft_code code = ft_rpc_endpoint_parse(&parsed, endpoint, err);
    if (code != FT_OK)
        return code;
    *is_unix = parsed.is_unix;
    *is_local = ft_rpc_endpoint_is_local(&parsed);
    return FT_OK;
}

static int try_bind(const struct addrinfo *ai) {
    int fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC, ai->ai_protocol);
    if (fd < 0)
        return errno;
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    int rc = bind(fd, ai->ai_addr, ai->ai_addrlen) != 0 || listen(fd, 1) != 0 ? errno : 0;
    close(fd);
    return rc;
}

int ft_rpc_endpoint_bind_errno(const struct ft_rpc_endpoint *endpoint) {
    if (endpoint->is_unix)
        return 0;
    char port[8];
    snprintf(port, sizeof port, "%d", endpoint->port & 0xFFFF);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    if (getaddrinfo(endpoint->host, port, &hints, &list) != 0)
        return EADDRNOTAVAIL;
    int rc = 0;
    for (const struct addrinfo *ai = list; ai != NULL && rc == 0; ai = ai->ai_next)
        rc = try_bind(ai);
    freeaddrinfo(list);
    return rc;
}
