#include "common/text/bpe.h"

#include <stdlib.h>

#define MODULE "tokenizer"
#define RANK_NONE INT32_MAX
/* Words repeat: a direct-mapped cache of short pieces answers most of a text. 1.3 MB. */
#define CACHE_SLOTS 16384
#define CACHE_PIECE_BYTES 31
#define CACHE_IDS 10
/* Scratch above this goes back after a piece; ordinary pieces never come near. */
#define SYMBOLS_KEPT 65536

struct ft_bpe_merge {
    uint64_t pair;
    int32_t rank; /* RANK_NONE: an empty slot */
    int32_t result;
};

struct ft_bpe_cached {
    int32_t ids[CACHE_IDS];
    uint8_t n_ids;
    uint8_t len; /* 0: empty */
    char piece[CACHE_PIECE_BYTES];
};

/* A token of the piece in a list; one that was merged into its left neighbour has rank NONE. */
struct ft_bpe_symbol {
    int32_t id;
    int32_t prev, next; /* -1 at the ends */
    int32_t rank;       /* of the merge with next */
    int32_t result;     /* of that merge */
};

static uint64_t pair_of(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static struct ft_bpe_merge *merge_slot(const struct ft_bpe *bpe, uint64_t pair) {
    uint64_t h = pair * 0x9E3779B97F4A7C15u;
    size_t i = (size_t)(h ^ (h >> 32)) & (bpe->n_slots - 1);
    while (bpe->merges[i].rank != RANK_NONE && bpe->merges[i].pair != pair)
        i = (i + 1) & (bpe->n_slots - 1);
    return &bpe->merges[i];
}

static bool is_utf8_byte(int byte) {
    return byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
}

static enum ft_code find_bytes(struct ft_bpe *bpe, struct ft_err *err) {
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        bpe->byte_ids[byte] = ft_strmap_get(&bpe->vocab->pieces, (struct ft_str){&c, 1});
        if (bpe->byte_ids[byte] < 0 && is_utf8_byte(byte))
            return ft_err_set(err, FT_E_PROC_MODEL, MODULE,
                              "model.vocab has no token for the byte 0x%02x", (unsigned)byte);
    }
    return FT_OK;
}

enum ft_code ft_bpe_init(struct ft_bpe *bpe, const struct ft_vocab *vocab, size_t n_merges,
                         struct ft_err *err) {
    *bpe = (struct ft_bpe){.vocab = vocab, .n_slots = 16};
    while (bpe->n_slots < n_merges * 2)
        bpe->n_slots *= 2;
    bpe->merges = malloc(bpe->n_slots * sizeof *bpe->merges);
    if (bpe->merges == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for %zu merges", n_merges);
    for (size_t i = 0; i < bpe->n_slots; i++)
        bpe->merges[i].rank = RANK_NONE;
    enum ft_code code = find_bytes(bpe, err);
    if (code != FT_OK)
        ft_bpe_fini(bpe);
    return code;
}

static void free_scratch(struct ft_bpe *bpe) {
    free(bpe->symbols);
    free(bpe->heap);
    bpe->symbols = NULL;
    bpe->heap = NULL;
    bpe->n_symbols_cap = 0;
}

void ft_bpe_fork(struct ft_bpe *bpe, const struct ft_bpe *original) {
    *bpe = *original;
    bpe->is_fork = true;
    bpe->cache = NULL;
    bpe->symbols = NULL;
    bpe->heap = NULL;
    bpe->n_symbols_cap = 0;
}

void ft_bpe_fini(struct ft_bpe *bpe) {
    if (!bpe->is_fork)
        free(bpe->merges);
    free(bpe->cache);
    free_scratch(bpe);
    *bpe = (struct ft_bpe){0};
}

void ft_bpe_add(struct ft_bpe *bpe, int32_t left, int32_t right, int32_t rank, int32_t result) {
    FT_ASSERT(rank >= 0 && rank < RANK_NONE);
    uint64_t pair = pair_of(left, right);
    *merge_slot(bpe, pair) = (struct ft_bpe_merge){pair, rank, result};
}

static bool reserve_scratch(struct ft_bpe *bpe, size_t n) {
    if (n <= bpe->n_symbols_cap)
        return true;
    size_t cap = n < 256 ? 256 : n;
    free_scratch(bpe);
    bpe->symbols = malloc(cap * sizeof *bpe->symbols);
    /* Each of the n - 1 first pairs, then at most two new pairs for each of n - 1 merges, which
     * took one out. */
    bpe->heap = malloc(2 * cap * sizeof *bpe->heap);
    if (bpe->symbols == NULL || bpe->heap == NULL) {
        free_scratch(bpe);
        return false;
    }
    bpe->n_symbols_cap = cap;
    return true;
}

/* The heap holds rank << 32 | position, so that of equal ranks the leftmost goes first. */
static void heap_push(uint64_t *heap, size_t *n, uint64_t key) {
    size_t i = (*n)++;
    while (i > 0 && heap[(i - 1) / 2] > key) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = key;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n) {
    uint64_t top = heap[0], last = heap[--*n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= *n)
            break;
        if (child + 1 < *n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= last)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

/* Look up the merge of the symbol at `at` with its next one, and queue it. */
static void queue_pair(struct ft_bpe *bpe, int32_t at, size_t *n_heap) {
    struct ft_bpe_symbol *s = &bpe->symbols[at];
    s->rank = RANK_NONE;
    if (s->next < 0)
        return;
    const struct ft_bpe_merge *m = merge_slot(bpe, pair_of(s->id, bpe->symbols[s->next].id));
    if (m->rank == RANK_NONE)
        return;
    s->rank = m->rank;
    s->result = m->result;
    heap_push(bpe->heap, n_heap, (uint64_t)(uint32_t)m->rank << 32 | (uint32_t)at);
}

static void merge_all(struct ft_bpe *bpe, struct ft_str piece) {
    struct ft_bpe_symbol *symbols = bpe->symbols;
    size_t n_heap = 0;
    int32_t n = (int32_t)piece.len;
    for (int32_t i = 0; i < n; i++)
        symbols[i] = (struct ft_bpe_symbol){.id = bpe->byte_ids[(unsigned char)piece.ptr[i]],
                                            .prev = i - 1,
                                            .next = i + 1 < n ? i + 1 : -1};
    for (int32_t i = 0; i < n; i++)
        queue_pair(bpe, i, &n_heap);
    while (n_heap > 0) {
        uint64_t key = heap_pop(bpe->heap, &n_heap);
        int32_t at = (int32_t)(key & UINT32_MAX);
        struct ft_bpe_symbol *left = &symbols[at];
        if (left->rank != (int32_t)(key >> 32))
            continue; /* one of the two has been merged otherwise since it was queued */
        struct ft_bpe_symbol *right = &symbols[left->next];
        left->id = left->result;
        left->next = right->next;
        right->rank = RANK_NONE;
        if (left->next >= 0)
            symbols[left->next].prev = at;
        queue_pair(bpe, at, &n_heap);
        if (left->prev >= 0)
            queue_pair(bpe, left->prev, &n_heap);
    }
}

static enum ft_code encode_uncached(struct ft_bpe *bpe, struct ft_str piece, struct ft_ids *out) {
    int32_t whole =
        bpe->ignore_merges || piece.len == 1 ? ft_strmap_get(&bpe->vocab->pieces, piece) : -1;
    if (whole >= 0)
        return ft_ids_push(out, &whole, 1);
    if (!reserve_scratch(bpe, piece.len))
        return FT_E_PROC_MEMORY;
    merge_all(bpe, piece);
    enum ft_code code = FT_OK;
    for (int32_t i = 0; i >= 0 && code == FT_OK; i = bpe->symbols[i].next)
        code = ft_ids_push(out, &bpe->symbols[i].id, 1);
    if (bpe->n_symbols_cap > SYMBOLS_KEPT)
        free_scratch(bpe);
    return code;
}

enum ft_code ft_bpe_encode(struct ft_bpe *bpe, struct ft_str piece, struct ft_ids *out) {
    if (piece.len > CACHE_PIECE_BYTES)
        return encode_uncached(bpe, piece, out);
    if (bpe->cache == NULL)
        bpe->cache = calloc(CACHE_SLOTS, sizeof *bpe->cache);
    if (bpe->cache == NULL)
        return FT_E_PROC_MEMORY;
    struct ft_bpe_cached *slot = &bpe->cache[ft_strmap_hash(piece) % CACHE_SLOTS];
    if (ft_str_eq(piece, (struct ft_str){slot->piece, slot->len}))
        return ft_ids_push(out, slot->ids, slot->n_ids);
    size_t first = out->len;
    enum ft_code code = encode_uncached(bpe, piece, out);
    size_t n_ids = out->len - first;
    if (code != FT_OK || n_ids > CACHE_IDS)
        return code;
    memcpy(slot->ids, out->ptr + first, n_ids * sizeof *slot->ids);
    memcpy(slot->piece, piece.ptr, piece.len);
    slot->n_ids = (uint8_t)n_ids;
    slot->len = (uint8_t)piece.len;
    return FT_OK;
}
