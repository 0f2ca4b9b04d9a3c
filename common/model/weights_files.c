#include "common/model/weights_files.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/model/config_read.h"

#define MODULE "weights"
#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"
#define SUFFIX ".safetensors"
/* Published checkpoints of a trillion parameters have a few hundred. */
#define SHARDS_MAX 1024
#define PATH_MAX_BYTES 4096
#define ARENA_CHUNK_BYTES 65536

static enum ft_code no_memory(struct ft_err *err) {
    return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for the table of tensors");
}

/* A plain file name: nothing that leads out of the checkpoint's folder. */
static bool is_shard_name(const char *name) {
    size_t len = strlen(name), n_suffix = strlen(SUFFIX);
    return len > n_suffix && len <= FT_SAFETENSORS_NAME_MAX && name[0] != '.' &&
           strchr(name, '/') == NULL && strcmp(name + len - n_suffix, SUFFIX) == 0;
}

/* The distinct shards of weight_map, as keys of an object, in order of appearance. */
static enum ft_code collect_shards(json_t *weight_map, json_t *shards, struct ft_err *err) {
    const char *tensor = NULL;
    json_t *value = NULL;
    json_object_foreach(weight_map, tensor, value) {
        const char *name = json_string_value(value);
        if (name == NULL || !is_shard_name(name))
            return ft_err_set(err, FT_E_PROC_MODEL, MODULE,
                              INDEX_NAME ": tensor %.80s: the shard %.80s is no plain *" SUFFIX
                                         " file name",
                              tensor, name == NULL ? "(no string)" : name);
        if (json_object_get(shards, name) == NULL &&
            json_object_set_new(shards, name, json_true()) != 0)
            return no_memory(err);
        if (json_object_size(shards) > SHARDS_MAX)
            return ft_err_set(err, FT_E_PROC_MODEL, MODULE,
                              INDEX_NAME ": names more than %d shards", SHARDS_MAX);
    }
    if (json_object_size(shards) == 0)
        return ft_err_set(err, FT_E_PROC_MODEL, MODULE, INDEX_NAME ": weight_map is empty");
    return FT_OK;
}

/* A single file beside an index of other shards: one of the two is left from another save. */
static enum ft_code check_stale(const char *dir, const json_t *shards, struct ft_err *err) {
    char path[PATH_MAX_BYTES];
    enum ft_code code = ft_file_join(path, sizeof path, dir, SINGLE_NAME, err);
    if (code == FT_OK && json_object_get(shards, SINGLE_NAME) == NULL && access(path, F_OK) == 0)
        code = ft_err_set(err, FT_E_PROC_MODEL, MODULE,
                          INDEX_NAME ": names other files than the " SINGLE_NAME
                                     " beside it: one of the two is stale and must go");
    return code;
}

static enum ft_code open_shards(struct ft_weights_files *f, const char *dir, json_t *shards,
                                struct ft_err *err) {
    size_t n = json_object_size(shards);
    f->files = ft_arena_calloc(f->arena, n, sizeof f->files[0]);
    f->names = ft_arena_calloc(f->arena, n, sizeof f->names[0]);
    if (f->files == NULL || f->names == NULL)
        return no_memory(err);
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(shards, name, value) {
        const char *kept = ft_arena_str(f->arena, ft_str_c(name)).ptr;
        if (kept == NULL)
            return no_memory(err);
        enum ft_code code = ft_safetensors_open(&f->files[f->n_files], dir, kept, err);
        if (code != FT_OK)
            return code;
        f->names[f->n_files] = kept;
        f->n_tensors += f->files[f->n_files].n_entries;
        f->n_files++;
    }
    return FT_OK;
}

static int compare_names(const void *a, const void *b) {
    const struct ft_weights_tensor *x = a, *y = b;
    return strcmp(x->entry->name, y->entry->name);
}

static enum ft_code build_table(struct ft_weights_files *f, struct ft_err *err) {
    if (f->n_tensors == 0)
        return ft_err_set(err, FT_E_PROC_MODEL, MODULE, "%s: holds no tensor", f->names[0]);
    f->tensors = ft_arena_calloc(f->arena, f->n_tensors, sizeof f->tensors[0]);
    if (f->tensors == NULL)
        return no_memory(err);
    size_t n = 0;
    for (size_t i = 0; i < f->n_files; i++)
        for (size_t j = 0; j < f->files[i].n_entries; j++, n++) {
            const struct ft_safetensors_entry *entry = &f->files[i].entries[j];
            f->tensors[n].entry = entry;
            f->tensors[n].data = f->files[i].map.ptr + entry->begin;
            f->tensors[n].file = f->names[i];
        }
    qsort(f->tensors, n, sizeof f->tensors[0], compare_names);
    for (size_t i = 1; i < n; i++)
        if (compare_names(&f->tensors[i - 1], &f->tensors[i]) == 0)
            return ft_err_set(err, FT_E_PROC_MODEL, MODULE, "%s: tensor %.80s: is in %.80s as well",
                              f->tensors[i].file, f->tensors[i].entry->name,
                              f->tensors[i - 1].file);
    return FT_OK;
}

/* Index and shards say the same, tensor by tensor, in both directions. */
static enum ft_code check_index(const struct ft_weights_files *f, json_t *weight_map,
                                struct ft_err *err) {
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(weight_map, name, value) {
        const struct ft_weights_tensor *tensor = ft_weights_files_find(f, name);
        if (tensor == NULL || strcmp(tensor->file, json_string_value(value)) != 0)
            return ft_err_set(err, FT_E_PROC_MODEL, MODULE,
                              "%.80s: tensor %.80s: the index says it is here, but it is in %.80s",
                              json_string_value(value), name,
                              tensor == NULL ? "no shard" : tensor->file);
    }
    for (size_t i = 0; i < f->n_tensors; i++)
        if (json_object_get(weight_map, f->tensors[i].entry->name) == NULL)
            return ft_err_set(err, FT_E_PROC_MODEL, MODULE,
                              "%s: tensor %.80s: is not in " INDEX_NAME, f->tensors[i].file,
                              f->tensors[i].entry->name);
    return FT_OK;
}

static enum ft_code open_indexed(struct ft_weights_files *f, const char *dir, const json_t *index,
                                 struct ft_err *err) {
    json_t *weight_map = json_object_get(index, "weight_map");
    if (!json_is_object(weight_map))
        return ft_err_set(err, FT_E_PROC_MODEL, MODULE,
                          INDEX_NAME ": weight_map is missing or no object");
    json_t *shards = json_object();
    enum ft_code code = shards == NULL ? no_memory(err) : collect_shards(weight_map, shards, err);
    if (code == FT_OK)
        code = check_stale(dir, shards, err);
    if (code == FT_OK)
        code = open_shards(f, dir, shards, err);
    if (code == FT_OK)
        code = build_table(f, err);
    if (code == FT_OK)
        code = check_index(f, weight_map, err);
    json_decref(shards);
    return code;
}

static enum ft_code open_single(struct ft_weights_files *f, const char *dir, struct ft_err *err) {
    json_t *shards = json_pack("{s:b}", SINGLE_NAME, 1);
    enum ft_code code = shards == NULL ? no_memory(err) : open_shards(f, dir, shards, err);
    json_decref(shards);
    if (code == FT_E_REQ_NOT_FOUND)
        return ft_err_set(err, FT_E_PROC_MODEL, MODULE,
                          "neither " SINGLE_NAME " nor " INDEX_NAME " is there");
    return code == FT_OK ? build_table(f, err) : code;
}

enum ft_code ft_weights_files_open(struct ft_weights_files **out, const char *dir,
                                   struct ft_err *err) {
    struct ft_weights_files *f = calloc(1, sizeof *f);
    if (f == NULL)
        return no_memory(err);
    f->arena = ft_arena_create(ARENA_CHUNK_BYTES, 0);
    json_t *index = NULL;
    enum ft_code code =
        f->arena == NULL ? no_memory(err) : ft_config_read_file(dir, INDEX_NAME, &index, err);
    if (code == FT_OK)
        code = open_indexed(f, dir, index, err);
    else if (code == FT_E_REQ_NOT_FOUND)
        code = open_single(f, dir, err);
    json_decref(index);
    if (code != FT_OK) {
        ft_weights_files_close(&f);
        return code;
    }
    *out = f;
    return FT_OK;
}

void ft_weights_files_close(struct ft_weights_files **files) {
    if (files == NULL || *files == NULL)
        return;
    for (size_t i = 0; i < (*files)->n_files; i++)
        ft_safetensors_close(&(*files)->files[i]);
    ft_arena_destroy(&(*files)->arena);
    free(*files);
    *files = NULL;
}

struct ft_weights_tensor *ft_weights_files_find(const struct ft_weights_files *files,
                                                const char *name) {
    struct ft_safetensors_entry entry = {.name = name};
    struct ft_weights_tensor key = {.entry = &entry};
    return bsearch(&key, files->tensors, files->n_tensors, sizeof files->tensors[0], compare_names);
}
