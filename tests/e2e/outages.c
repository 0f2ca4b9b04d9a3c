#include "e2e/outages.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/ipc/channel.h"
#include "common/wire/operate.h"
#include "common/wire/worker.h"
#include "support/fake_draft.h"
#include "support/fixtures.h"

enum { RAW_CONNECTIONS = 64, MANY = 1000, STUCK = 4 };

/* ---- processes ------------------------------------------------------------------------------- */

static void kill_role(struct load *load, enum cluster_role role) {
    cluster_signal(load->cluster, role, SIGKILL);
}

static void spawn(struct load *load, enum cluster_role role) {
    ck_assert_int_eq(cluster_spawn(load->cluster, role), 0);
}

static void kill_draft(struct load *load) {
    kill_role(load, CLUSTER_DRAFT);
}

static void spawn_draft(struct load *load) {
    spawn(load, CLUSTER_DRAFT);
}

static void stop_draft(struct load *load) {
    cluster_signal(load->cluster, CLUSTER_DRAFT, SIGSTOP);
}

static void continue_draft(struct load *load) {
    cluster_signal(load->cluster, CLUSTER_DRAFT, SIGCONT);
}

/* Late, but within its deadline. */
static void slow_draft(struct load *load) {
    for (int i = 0; i < 15; i++) {
        stop_draft(load);
        load_run(load, 40);
        continue_draft(load);
        load_run(load, 10);
    }
}

static const char *g_draft_dir;

static void other_draft(struct load *load) {
    g_draft_dir = load->cluster->opts.draft_dir;
    load->cluster->opts.draft_dir = ft_fixture_model("r8");
    cluster_signal(load->cluster, CLUSTER_DRAFT, SIGTERM);
    spawn_draft(load);
}

static void same_draft(struct load *load) {
    load->cluster->opts.draft_dir = g_draft_dir;
    cluster_signal(load->cluster, CLUSTER_DRAFT, SIGTERM);
    spawn_draft(load);
}

static void reload_draft(struct load *load, const char *dir) {
    struct ft_buf message;
    ft_buf_init(&message, 0);
    ft_wire_encode_reload_draft(ft_str_c(dir), &message);
    struct ft_rpc_status status =
        cluster_admin(load->cluster, "ReloadDraft", ft_buf_str(&message), NULL);
    ck_assert_msg(status.code == 0, "%s", status.text);
    ft_buf_fini(&message);
}

static void reload_other(struct load *load) {
    reload_draft(load, ft_fixture_model("r8"));
}

static void reload_same(struct load *load) {
    int64_t deadline_ns = ft_clock_now_ns() + 20000000000;
    while (!cluster_stats(load->cluster).draft.up) {
        ck_assert(ft_clock_now_ns() < deadline_ns);
        load_run(load, 10);
    }
    reload_draft(load, load->cluster->opts.draft_dir);
}

static void kill_target(struct load *load) {
    kill_role(load, CLUSTER_TARGET);
}

static void spawn_target(struct load *load) {
    spawn(load, CLUSTER_TARGET);
}

static void stop_target(struct load *load) {
    cluster_signal(load->cluster, CLUSTER_TARGET, SIGSTOP);
}

static void continue_target(struct load *load) {
    cluster_signal(load->cluster, CLUSTER_TARGET, SIGCONT);
}

static void restart_target(struct load *load) {
    cluster_signal(load->cluster, CLUSTER_TARGET, SIGTERM);
    spawn_target(load);
}

static void kill_both(struct load *load) {
    kill_target(load);
    kill_draft(load);
}

static void spawn_both(struct load *load) {
    spawn_draft(load);
    spawn_target(load);
}

static void nothing(struct load *load) {
    (void)load;
}

/* ---- nonsense -------------------------------------------------------------------------------- */

static struct fake_draft *g_fake;

/* What the real one says of itself, then nonsense from its place. */
static void garbage_begin(struct load *load) {
    char endpoint[192];
    struct ft_buf describe;
    struct ft_rpc_client *client = NULL;
    struct ft_rpc_call_opts opts = {.deadline_ns = ft_clock_now_ns() + 20000000000};
    ft_buf_init(&describe, 0);
    snprintf(endpoint, sizeof endpoint, "unix:%s/draft.sock", load->cluster->dir);
    ck_assert_int_eq(ft_rpc_client_open(&client, load->cluster->loop, endpoint, NULL, NULL), FT_OK);
    struct ft_rpc_status status = ft_rpc_client_unary_sync(
        client, FT_WIRE_DRAFT_SERVICE "Describe", (struct ft_str){NULL, 0}, &opts, &describe);
    ck_assert_msg(status.code == 0, "%s", status.text);
    ft_rpc_client_close(&client);
    kill_draft(load);
    g_fake = fake_draft_start(endpoint, ft_buf_str(&describe));
    ft_buf_fini(&describe);
}

static void garbage_end(struct load *load) {
    int n_steps = fake_draft_stop(g_fake);
    ck_assert_msg(n_steps >= 1, "no step was answered with nonsense");
    spawn_draft(load);
}

/* ---- shared memory --------------------------------------------------------------------------- */

/* Remove what has a name of the shared memory that a worker has mapped; how many there were. */
static int remove_shared(const struct cluster *cluster, enum cluster_role role) {
    char path[64], line[512];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)cluster->pids[role]);
    FILE *maps = fopen(path, "re");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        char *name = strstr(line, "/dev/shm/");
        if (name == NULL || strstr(name, "(deleted)") != NULL)
            continue;
        name[strcspn(name, "\n")] = 0;
        n += unlink(name) == 0;
    }
    if (maps != NULL)
        fclose(maps);
    return n;
}

/* While attached there is no name that anybody could remove; while a worker attaches there is one
 * for a moment, and removing it then costs an attempt. */
static void shared_removed(struct load *load) {
    ck_assert_int_eq(remove_shared(load->cluster, CLUSTER_TARGET), 0);
    ck_assert_int_eq(remove_shared(load->cluster, CLUSTER_DRAFT), 0);
    for (int i = 0; i < 3; i++) {
        enum cluster_role role = i % 2 == 0 ? CLUSTER_DRAFT : CLUSTER_TARGET;
        kill_role(load, role);
        spawn(load, role);
        int64_t until_ns = ft_clock_now_ns() + 300000000;
        while (ft_clock_now_ns() < until_ns)
            remove_shared(load->cluster, role);
        load_run(load, 50);
    }
}

/* Write over the counts and lengths of both slots of the channel behind a worker's back; false: it
 * has no region at the moment. */
static bool scribble(const struct cluster *cluster, enum cluster_role role, uint64_t seed) {
    char path[64], line[512];
    unsigned long long at = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)cluster->pids[role]);
    FILE *maps = fopen(path, "re");
    while (maps != NULL && at == 0 && fgets(line, sizeof line, maps) != NULL)
        if (strstr(line, "/dev/shm/foretoken-") != NULL)
            at = strtoull(line, NULL, 16);
    if (maps != NULL)
        fclose(maps);
    if (at == 0)
        return false;
    snprintf(path, sizeof path, "/proc/%d/mem", (int)cluster->pids[role]);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_msg(fd >= 0, "%s cannot be opened", path);
    for (int slot = 0; slot < 2; slot++) {
        uint64_t noise = seed = seed * 6364136223846793005u + 1442695040888963407u;
        off_t begins =
            (off_t)at + 4096 + slot * (off_t)(FT_CHANNEL_BYTES / 2); /* a page of header */
        off_t ends = begins + (off_t)(FT_CHANNEL_BYTES / 2) - 64;
        ck_assert_int_eq(pwrite(fd, &noise, sizeof noise, begins), sizeof noise); /* put, length */
        ck_assert_int_eq(pwrite(fd, &noise, sizeof noise, ends), sizeof noise);   /* taken, state */
    }
    close(fd);
    return true;
}

static void shared_scribbled(struct load *load) {
    int n = 0;
    for (int i = 0; i < 6; i++) {
        enum cluster_role role = i % 2 == 0 ? CLUSTER_DRAFT : CLUSTER_TARGET;
        n += scribble(load->cluster, role, ft_clock_random_u64());
        load_run(load, 100);
    }
    ck_assert_int_ge(n, 1);
}

/* ---- clients --------------------------------------------------------------------------------- */

static int g_raw[RAW_CONNECTIONS];

static void open_raw(struct load *load, const char *text) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int n = snprintf(address.sun_path, sizeof address.sun_path, "%.80s/public.sock",
                     load->cluster->dir);
    ck_assert_int_lt(n, (int)sizeof address.sun_path);
    for (int i = 0; i < RAW_CONNECTIONS; i++) {
        g_raw[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        ck_assert_int_ge(g_raw[i], 0);
        /* Full backlogs and descriptors are what this is about. */
        if (connect(g_raw[i], (struct sockaddr *)&address, sizeof address) == 0 &&
            send(g_raw[i], text, strlen(text), MSG_NOSIGNAL) < 0)
            continue;
    }
}

static void close_raw(struct load *load) {
    (void)load;
    for (int i = 0; i < RAW_CONNECTIONS; i++)
        close(g_raw[i]);
}

/* Connections whose other side has begun to speak and says no more. */
static void half_open(struct load *load) {
    open_raw(load, "PRI * HTTP/2.0\r\n\r\nSM\r\n");
}

static struct rlimit g_limit;

static void few_descriptors(struct load *load) {
    pid_t pid = load->cluster->pids[CLUSTER_COORDINATOR];
    rlim_t now = (rlim_t)outage_descriptors(load->cluster, CLUSTER_COORDINATOR);
    struct rlimit limit;
    ck_assert_int_eq(prlimit(pid, RLIMIT_NOFILE, NULL, &g_limit), 0);
    limit = g_limit;
    limit.rlim_cur = now + 8;
    ck_assert_int_eq(prlimit(pid, RLIMIT_NOFILE, &limit, NULL), 0);
    open_raw(load, "");
}

static void many_descriptors(struct load *load) {
    close_raw(load);
    ck_assert_int_eq(
        prlimit(load->cluster->pids[CLUSTER_COORDINATOR], RLIMIT_NOFILE, &g_limit, NULL), 0);
}

/* A client that has sent its requests and never looks again. */
static struct cluster g_stuck;
static struct gen g_stuck_gens[STUCK];

static void stuck_client(struct load *load) {
    g_stuck = *load->cluster;
    g_stuck.client = NULL;
    ck_assert_int_eq(ft_rpc_loop_create(&g_stuck.loop, 0, NULL), FT_OK);
    ck_assert_int_eq(
        ft_rpc_client_open(&g_stuck.client, g_stuck.loop, g_stuck.endpoint, NULL, NULL), FT_OK);
    for (int i = 0; i < STUCK; i++) {
        struct ft_wire_generate request = gen_text("never read", 3000, 4);
        request.params.ignore_eos = true;
        gen_start(&g_stuck, &request, &g_stuck_gens[i]);
    }
    int64_t deadline_ns = ft_clock_now_ns() + 20000000000;
    while (g_stuck_gens[0].n_ids == 0) {
        ck_assert(ft_clock_now_ns() < deadline_ns);
        ft_rpc_loop_step(g_stuck.loop, ft_clock_now_ns() + 10000000);
    }
}

static void stuck_client_goes(struct load *load) {
    (void)load;
    for (int i = 0; i < STUCK; i++)
        ft_rpc_stream_cancel(g_stuck_gens[i].stream);
    ft_rpc_client_close(&g_stuck.client);
    ft_rpc_loop_destroy(&g_stuck.loop);
    for (int i = 0; i < STUCK; i++)
        gen_fini(&g_stuck_gens[i]);
}

static int g_n_done, g_n_ok;

static void many_message(void *user, struct ft_str message) {
    (void)user;
    (void)message;
}

static void many_done(void *user, const struct ft_rpc_status *status) {
    (void)user;
    g_n_done++;
    g_n_ok += status->code == 0;
}

static void thousand_streams(struct load *load) {
    static const struct ft_rpc_stream_handlers handlers = {.on_message = many_message,
                                                           .on_done = many_done};
    struct ft_rpc_client *client = NULL;
    struct ft_rpc_call_opts opts = {0};
    struct ft_buf message;
    struct ft_wire_generate request = gen_text("many", 2, 4);
    g_n_done = g_n_ok = 0;
    ft_buf_init(&message, 0);
    ft_wire_encode_generate(&request, &message);
    ck_assert_int_eq(
        ft_rpc_client_open(&client, load->cluster->loop, load->cluster->endpoint, NULL, NULL),
        FT_OK);
    for (int i = 0; i < MANY; i++) {
        struct ft_rpc_stream *stream;
        ck_assert_int_eq(ft_rpc_stream_open(&stream, client, FT_WIRE_INFERENCE_SERVICE "Generate",
                                            &opts, &handlers, NULL, NULL),
                         FT_OK);
        ft_rpc_stream_send(stream, ft_buf_str(&message));
        ft_rpc_stream_half_close(stream);
    }
    int64_t deadline_ns = ft_clock_now_ns() + 120000000000;
    while (g_n_done < MANY) {
        ck_assert(ft_clock_now_ns() < deadline_ns);
        load_run(load, 20);
    }
    ck_assert_int_eq(g_n_ok, MANY); /* the queue is longer than that */
    ft_rpc_client_close(&client);
    ft_buf_fini(&message);
}

/* ---- the table ------------------------------------------------------------------------------- */

const struct outage outages[] = {
    {"draft worker killed", kill_draft, 300, spawn_draft},
    {"draft worker stopped", stop_draft, 700, continue_draft},
    {"draft worker slow", slow_draft, 0, nothing},
    {"draft worker sends garbage", garbage_begin, 3000, garbage_end},
    {"draft worker comes back with another model", other_draft, 300, same_draft},
    {"draft model reloaded twice", reload_other, 100, reload_same},
    {"target worker killed", kill_target, 300, spawn_target},
    {"target worker stopped", stop_target, 1500, continue_target},
    {"target worker restarted", restart_target, 0, nothing},
    {"both workers killed", kill_both, 300, spawn_both},
    {"shared memory removed", shared_removed, 0, nothing},
    {"shared memory scribbled over", shared_scribbled, 0, nothing},
    {"no file descriptors left", few_descriptors, 400, many_descriptors},
    {"client never reads", stuck_client, 500, stuck_client_goes},
    {"client opens 1,000 streams", thousand_streams, 0, nothing},
    {"half-open connections", half_open, 500, close_raw},
};
const size_t n_outages = sizeof outages / sizeof outages[0];

/* ---- looking --------------------------------------------------------------------------------- */

int outage_descriptors(const struct cluster *cluster, enum cluster_role role) {
    char path[64];
    int n = -2; /* "." and ".." */
    snprintf(path, sizeof path, "/proc/%d/fd", (int)cluster->pids[role]);
    DIR *dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

size_t outage_memory(const struct cluster *cluster, enum cluster_role role) {
    char path[64];
    unsigned long long pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)cluster->pids[role]);
    FILE *file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%*u %llu", &pages), 1);
    fclose(file);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}
