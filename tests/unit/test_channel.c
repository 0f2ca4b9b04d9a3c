#include <check.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "common/ipc/channel.h"
#include "common/ipc/region.h"
#include "support/suite.h"

static void *g_shared;
static struct ft_channel g_worker, g_coordinator;
static struct ft_buf g_in;

static void set_up(void) {
    g_shared = aligned_alloc(4096, FT_CHANNEL_BYTES);
    memset(g_shared, 0, FT_CHANNEL_BYTES);
    ft_channel_open(&g_worker, g_shared, FT_CHANNEL_WORKER);
    ft_channel_open(&g_coordinator, g_shared, FT_CHANNEL_COORDINATOR);
    ft_buf_init(&g_in, 0);
}

static void tear_down(void) {
    ft_buf_fini(&g_in);
    free(g_shared);
}

static bool take(struct ft_channel *channel) {
    bool taken;
    struct ft_err err;
    ck_assert_int_eq(ft_channel_take(channel, &g_in, &taken, &err), FT_OK);
    return taken;
}

START_TEST(a_message_arrives_once_and_whole) {
    char big[FT_CHANNEL_MESSAGE_MAX];
    memset(big, 'x', sizeof big);
    ft_channel_listen(&g_worker, FT_CHANNEL_AWAKE);
    ck_assert(!take(&g_worker));
    ck_assert_int_eq(ft_channel_put(&g_coordinator, ft_str_c("step")), FT_CHANNEL_SEEN);
    ck_assert(take(&g_worker));
    ck_assert(ft_str_eq(ft_buf_str(&g_in), ft_str_c("step")));
    ck_assert(!take(&g_worker));
    ck_assert_int_eq(ft_channel_put(&g_coordinator, (struct ft_str){big, sizeof big}),
                     FT_CHANNEL_SEEN);
    ck_assert(take(&g_worker));
    ck_assert_uint_eq(g_in.len, sizeof big);
    ck_assert_mem_eq(g_in.ptr, big, sizeof big);
    ck_assert(!take(&g_coordinator)); /* the other way is another slot */
}
END_TEST

START_TEST(nothing_is_put_where_nobody_listens_or_nothing_fits) {
    char big[FT_CHANNEL_MESSAGE_MAX + 1] = "";
    ck_assert_int_eq(ft_channel_put(&g_worker, ft_str_c("reply")), FT_CHANNEL_REFUSED);
    ft_channel_listen(&g_coordinator, FT_CHANNEL_AWAKE);
    ck_assert_int_eq(ft_channel_put(&g_worker, (struct ft_str){big, sizeof big}),
                     FT_CHANNEL_REFUSED);
    ck_assert(!take(&g_coordinator));
    ck_assert_int_eq(ft_channel_put(&g_worker, ft_str_c("one")), FT_CHANNEL_SEEN);
    ck_assert_int_eq(ft_channel_put(&g_worker, ft_str_c("two")), FT_CHANNEL_REFUSED);
    ck_assert(take(&g_coordinator));
    ck_assert(ft_str_eq(ft_buf_str(&g_in), ft_str_c("one")));
    ft_channel_listen(&g_coordinator, FT_CHANNEL_CLOSED);
    ck_assert_int_eq(ft_channel_put(&g_worker, ft_str_c("two")), FT_CHANNEL_REFUSED);
}
END_TEST

START_TEST(who_sleeps_has_to_be_rung) {
    ft_channel_listen(&g_worker, FT_CHANNEL_ASLEEP);
    ck_assert_int_eq(ft_channel_put(&g_coordinator, ft_str_c("step")), FT_CHANNEL_RING);
    ft_channel_listen(&g_worker, FT_CHANNEL_AWAKE);
    ck_assert(take(&g_worker));
}
END_TEST

START_TEST(lengths_and_counts_that_cannot_be_are_refused) {
    static const struct {
        uint32_t n_put, n_bytes;
    } cases[] = {{1, FT_CHANNEL_MESSAGE_MAX + 1}, {1, UINT32_MAX}, {2, 4}, {UINT32_MAX, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool taken;
        struct ft_err err;
        /* The coordinator writes the first slot: its count, then the length. */
        memcpy(g_shared, &cases[i], sizeof cases[i]);
        ck_assert_int_eq(ft_channel_take(&g_worker, &g_in, &taken, &err), FT_E_PEER_PROTOCOL);
        ck_assert_ptr_nonnull(strstr(err.text, "expected message 1 of at most 65464"));
    }
}
END_TEST

START_TEST(both_sides_of_a_region_share_its_channel) {
    struct ft_region *made, *mapped;
    struct ft_region_layout layout = {.epoch = 7, .n_rows = 1, .n_cols = 16};
    struct ft_err err;
    ck_assert_int_eq(ft_region_create(&made, &layout, &err), FT_OK);
    ck_assert_int_eq(ft_region_map(&mapped, ft_region_name(made), 7, &err), FT_OK);
    ft_channel_listen(ft_region_channel(made), FT_CHANNEL_AWAKE);
    ck_assert_int_eq(ft_channel_put(ft_region_channel(mapped), ft_str_c("step")), FT_CHANNEL_SEEN);
    ck_assert(take(ft_region_channel(made)));
    ck_assert(ft_str_eq(ft_buf_str(&g_in), ft_str_c("step")));
    /* A message that fills the slot does not reach the rows behind it. */
    static char big[FT_CHANNEL_MESSAGE_MAX];
    memset(big, 'x', sizeof big);
    ft_channel_listen(ft_region_channel(mapped), FT_CHANNEL_AWAKE);
    ft_region_row_mut(made, 0, 0)[0] = 0.5f;
    ck_assert_int_eq(ft_channel_put(ft_region_channel(made), (struct ft_str){big, sizeof big}),
                     FT_CHANNEL_SEEN);
    ck_assert(ft_region_row(mapped, 0, 0)[0] == 0.5f);
    ck_assert(take(ft_region_channel(mapped)));
    ft_region_close(&mapped);
    ft_region_close(&made);
}
END_TEST

/* ---- no message waits for a sleeper that nobody rings -----------------------------------------
 */

enum { ROUNDS = 20000 };

struct party {
    struct ft_channel channel;
    sem_t *bell, *other_bell;
    unsigned seed;
    int n_sleeps;
};

/* The next message, looked for a random while, then asleep until rung. */
static uint32_t receive(struct party *party, struct ft_buf *in) {
    struct ft_err err;
    uint32_t value;
    for (int looks = rand_r(&party->seed) % 64;; looks--) {
        bool taken;
        /* Rung for what was found by looking: it must not wake us for what nobody rings for. */
        while (looks <= 0 && sem_trywait(party->bell) == 0)
            ;
        ft_channel_listen(&party->channel, looks > 0 ? FT_CHANNEL_AWAKE : FT_CHANNEL_ASLEEP);
        ck_assert_int_eq(ft_channel_take(&party->channel, in, &taken, &err), FT_OK);
        if (taken)
            break;
        if (looks <= 0) {
            sem_wait(party->bell);
            party->n_sleeps++;
        }
    }
    ck_assert_uint_eq(in->len, sizeof value);
    memcpy(&value, in->ptr, sizeof value);
    return value;
}

static void send(struct party *party, uint32_t value) {
    struct ft_str message = {(const char *)&value, sizeof value};
    enum ft_channel_put put;
    /* The other side has taken the last one: it has answered it. */
    ck_assert_int_ne(put = ft_channel_put(&party->channel, message), FT_CHANNEL_REFUSED);
    if (put == FT_CHANNEL_RING)
        sem_post(party->other_bell);
}

static void *answer(void *user) {
    struct party *party = user;
    struct ft_buf in;
    ft_buf_init(&in, 0);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        ck_assert_uint_eq(receive(party, &in), 2 * i);
        send(party, 2 * i + 1);
    }
    ft_buf_fini(&in);
    return NULL;
}

START_TEST(two_that_sleep_and_look_never_miss_each_other) {
    sem_t bells[2];
    sem_init(&bells[0], 0, 0);
    sem_init(&bells[1], 0, 0);
    struct party worker = {g_worker, &bells[0], &bells[1], 1, 0};
    struct party coordinator = {g_coordinator, &bells[1], &bells[0], 2, 0};
    ft_channel_listen(&worker.channel, FT_CHANNEL_AWAKE);
    ft_channel_listen(&coordinator.channel, FT_CHANNEL_AWAKE);
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, answer, &worker), 0);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        send(&coordinator, 2 * i);
        ck_assert_uint_eq(receive(&coordinator, &g_in), 2 * i + 1);
    }
    pthread_join(thread, NULL);
    ck_assert_int_gt(worker.n_sleeps + coordinator.n_sleeps, 0);
    sem_destroy(&bells[0]);
    sem_destroy(&bells[1]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("channel");
    TCase *tc = tcase_create("channel");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, a_message_arrives_once_and_whole);
    tcase_add_test(tc, nothing_is_put_where_nobody_listens_or_nothing_fits);
    tcase_add_test(tc, who_sleeps_has_to_be_rung);
    tcase_add_test(tc, lengths_and_counts_that_cannot_be_are_refused);
    tcase_add_test(tc, both_sides_of_a_region_share_its_channel);
    tcase_add_test(tc, two_that_sleep_and_look_never_miss_each_other);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
