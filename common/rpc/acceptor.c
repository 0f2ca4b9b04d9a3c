#include "common/rpc/acceptor.h"

#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/rpc/rpc.h"

#define MODULE "rpc"
#define BACKLOG 512
#define USERS_MAX 32         /* of a rule */
#define NAME_BYTES_MAX 64    /* of a user or group; 32 is the system's limit */
#define RECORD_BYTES 16384   /* of an entry of the user database */
#define NO_FILES_PAUSE_MS 50 /* when the process has no descriptor left for a connection */

struct ft_rpc_acceptor {
    struct ft_rpc_socket_lock lock;
    char path[108];
    uid_t users[USERS_MAX]; /* who may connect, beside root */
    size_t n_users;
    bool everybody;
    int fd, quit_fd; /* -1: none */
    struct ft_rpc_loop *loop;
    ft_rpc_accepted_fn fn;
    void *user;
    pthread_t thread;
    bool bound;            /* what lies at path is ours */
    bool running;          /* the thread */
    bool ended;            /* loop thread: nobody is told any more */
    pthread_mutex_t mutex; /* guards n_posted */
    size_t n_posted;       /* arrivals that the loop has not handled yet */
};

struct arrival {
    struct ft_rpc_acceptor *acceptor;
    int fd; /* -1: turned away */
    uid_t uid;
};

/* ---- the rule -------------------------------------------------------------------------------- */

static bool read_number(const char *text, uint32_t *out) {
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    *out = (uint32_t)value;
    /* The largest number stands for "none" in the system's calls. */
    return text[0] >= '0' && text[0] <= '9' && *end == 0 && errno == 0 && value < UINT32_MAX;
}

static enum ft_code find_user(const char *name, uid_t *out, struct ft_err *err) {
    char record[RECORD_BYTES];
    struct passwd entry, *found = NULL;
    if (read_number(name, out))
        return FT_OK;
    if (getpwnam_r(name, &entry, record, sizeof record, &found) != 0 || found == NULL)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "socket_users: no user '%s' here", name);
    *out = found->pw_uid;
    return FT_OK;
}

static enum ft_code find_group(const char *name, gid_t *out, struct ft_err *err) {
    char record[RECORD_BYTES];
    struct group entry, *found = NULL;
    if (read_number(name, out))
        return FT_OK;
    if (getgrnam_r(name, &entry, record, sizeof record, &found) != 0 || found == NULL)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "socket_group: no group '%s' here", name);
    *out = found->gr_gid;
    return FT_OK;
}

static enum ft_code take_users(struct ft_rpc_acceptor *a, const char *users, struct ft_err *err) {
    char name[NAME_BYTES_MAX];
    a->users[a->n_users++] = geteuid();
    if (users == NULL)
        return FT_OK;
    a->everybody = strcmp(users, "*") == 0;
    for (const char *at = users; *at != 0 && !a->everybody;) {
        size_t len = strcspn(at, ",");
        if (len == 0 || len >= sizeof name || a->n_users == USERS_MAX)
            return ft_err_set(
                err, FT_E_PROC_CONFIG, MODULE,
                "socket_users is '%.100s': wanted names or numbers of at most %d users, "
                "comma-separated, or *",
                users, USERS_MAX - 1);
        memcpy(name, at, len);
        name[len] = 0;
        enum ft_code code = find_user(name, &a->users[a->n_users], err);
        if (code != FT_OK)
            return code;
        a->n_users++;
        at += len + (at[len] == ',');
    }
    return FT_OK;
}

enum ft_code ft_rpc_socket_rule_check(const struct ft_rpc_socket_rule *rule, struct ft_err *err) {
    struct ft_rpc_acceptor probe = {0};
    gid_t gid;
    enum ft_code code = take_users(&probe, rule->users, err);
    if (code == FT_OK && rule->group != NULL && rule->group[0] != 0)
        code = find_group(rule->group, &gid, err);
    return code;
}

static bool may_connect(const struct ft_rpc_acceptor *a, uid_t uid) {
    if (uid == 0 || a->everybody)
        return true;
    for (size_t i = 0; i < a->n_users; i++)
        if (a->users[i] == uid)
            return true;
    return false;
}

/* ---- the socket ------------------------------------------------------------------------------ */

/* The socket is born with mode 0600 and gets more once it has its group. */
static enum ft_code bind_socket(struct ft_rpc_acceptor *a, const struct ft_rpc_socket_rule *rule,
                                struct ft_err *err) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    unsigned mode = rule->mode != 0 ? rule->mode : 0600;
    memcpy(address.sun_path, a->path, strlen(a->path) + 1);
    if (unlink(a->path) != 0 && errno != ENOENT) /* nobody's: the lock is ours and nobody answers */
        return ft_err_set_os(err, FT_E_PROC_CONFIG, errno, MODULE, "unix:%s", a->path);
    a->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (a->fd < 0)
        return ft_err_set_os(err, FT_E_PROC_OS, errno, MODULE, "socket");
    mode_t old_mask = umask(0177);
    int rc = bind(a->fd, (const struct sockaddr *)&address, sizeof address);
    int os_errno = errno;
    umask(old_mask);
    if (rc != 0)
        return ft_err_set_os(err, FT_E_PROC_CONFIG, os_errno, MODULE, "cannot listen on unix:%s",
                             a->path);
    a->bound = true;
    gid_t gid = (gid_t)-1;
    if (rule->group != NULL && rule->group[0] != 0) {
        enum ft_code code = find_group(rule->group, &gid, err);
        if (code != FT_OK)
            return code;
        /* Not asked for in vain: a service that systemd sandboxes may not even call it. */
        struct stat st;
        bool owns = stat(a->path, &st) == 0 && st.st_gid == gid;
        if (!owns && chown(a->path, (uid_t)-1, gid) != 0)
            return ft_err_set_os(err, FT_E_PROC_CONFIG, errno, MODULE,
                                 "cannot give unix:%s to the group %s", a->path, rule->group);
    }
    if (chmod(a->path, mode) != 0 || listen(a->fd, BACKLOG) != 0)
        return ft_err_set_os(err, FT_E_PROC_CONFIG, errno, MODULE, "cannot listen on unix:%s",
                             a->path);
    return FT_OK;
}

enum ft_code ft_rpc_acceptor_open(struct ft_rpc_acceptor **out,
                                  const struct ft_rpc_endpoint *endpoint,
                                  const struct ft_rpc_socket_rule *rule, struct ft_err *err) {
    struct ft_rpc_acceptor *a = calloc(1, sizeof *a);
    if (a == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for a listener");
    a->fd = a->quit_fd = -1;
    memcpy(a->path, endpoint->path, sizeof a->path);
    enum ft_code code = take_users(a, rule->users, err);
    if (code == FT_OK)
        code = ft_rpc_socket_lock_take(&a->lock, a->path, err);
    if (code != FT_OK) {
        free(a);
        return code;
    }
    pthread_mutex_init(&a->mutex, NULL);
    code = bind_socket(a, rule, err);
    if (code == FT_OK && (a->quit_fd = eventfd(0, EFD_CLOEXEC)) < 0)
        code = ft_err_set_os(err, FT_E_PROC_OS, errno, MODULE, "eventfd");
    if (code != FT_OK) {
        ft_rpc_acceptor_close(&a);
        return code;
    }
    *out = a;
    return FT_OK;
}

/* ---- arrivals -------------------------------------------------------------------------------- */

static void count(struct ft_rpc_acceptor *a, int by) {
    pthread_mutex_lock(&a->mutex);
    a->n_posted += (size_t)by;
    pthread_mutex_unlock(&a->mutex);
}

static void arrive(void *user) {
    struct arrival *arrival = user;
    struct ft_rpc_acceptor *a = arrival->acceptor;
    if (!a->ended)
        a->fn(a->user, arrival->fd, arrival->uid);
    else if (arrival->fd >= 0)
        close(arrival->fd);
    free(arrival);
    count(a, -1);
}

static void post(struct ft_rpc_acceptor *a, int fd, uid_t uid) {
    struct arrival *arrival = malloc(sizeof *arrival);
    if (arrival != NULL) {
        *arrival = (struct arrival){a, fd, uid};
        count(a, 1);
        if (ft_rpc_loop_post(a->loop, arrive, arrival) == FT_OK)
            return;
        count(a, -1);
        free(arrival);
    }
    if (fd >= 0)
        close(fd); /* without memory the client finds its connection closed */
}

static void take_one(struct ft_rpc_acceptor *a) {
    int fd = accept4(a->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            poll(NULL, 0, NO_FILES_PAUSE_MS); /* the connection waits in the backlog */
        return;
    }
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t len = sizeof peer;
    bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0;
    if (known && may_connect(a, peer.uid)) {
        post(a, fd, peer.uid);
        return;
    }
    close(fd);
    post(a, -1, peer.uid);
}

static void *wait_for_peers(void *user) {
    struct ft_rpc_acceptor *a = user;
    struct pollfd fds[2] = {{.fd = a->fd, .events = POLLIN}, {.fd = a->quit_fd, .events = POLLIN}};
    for (;;) {
        if (poll(fds, 2, -1) < 0)
            continue;
        if (fds[1].revents != 0)
            return NULL;
        if (fds[0].revents != 0)
            take_one(a);
    }
}

enum ft_code ft_rpc_acceptor_begin(struct ft_rpc_acceptor *a, struct ft_rpc_loop *loop,
                                   ft_rpc_accepted_fn fn, void *user, struct ft_err *err) {
    a->loop = loop;
    a->fn = fn;
    a->user = user;
    int failed = pthread_create(&a->thread, NULL, wait_for_peers, a);
    if (failed != 0)
        return ft_err_set_os(err, FT_E_PROC_OS, failed, MODULE, "cannot start a thread");
    a->running = true;
    return FT_OK;
}

static bool is_pending(struct ft_rpc_acceptor *a) {
    pthread_mutex_lock(&a->mutex);
    bool pending = a->n_posted > 0;
    pthread_mutex_unlock(&a->mutex);
    return pending;
}

void ft_rpc_acceptor_end(struct ft_rpc_acceptor *a) {
    uint64_t one = 1;
    if (!a->running)
        return;
    a->running = false;
    a->ended = true;
    ssize_t n = write(a->quit_fd, &one, sizeof one);
    FT_ASSERT(n == (ssize_t)sizeof one); /* an event counter far from its end takes it */
    pthread_join(a->thread, NULL);
    while (is_pending(a))
        ft_rpc_loop_step(a->loop, ft_clock_now_ns() + 1000000);
}

void ft_rpc_acceptor_close(struct ft_rpc_acceptor **acceptor) {
    struct ft_rpc_acceptor *a = *acceptor;
    if (a == NULL)
        return;
    *acceptor = NULL;
    FT_ASSERT(!a->running);
    if (a->fd >= 0)
        close(a->fd);
    if (a->quit_fd >= 0)
        close(a->quit_fd);
    if (a->bound)
        unlink(a->path);
    ft_rpc_socket_lock_give(&a->lock);
    pthread_mutex_destroy(&a->mutex);
    free(a);
}
