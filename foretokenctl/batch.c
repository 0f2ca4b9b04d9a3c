/* A ring of jobs, one for each input line that is neither unread nor written: job of line i lies
 * at i modulo WINDOW. Results are written in the order of the lines, so that one that is ready
 * waits for those before it, and the ring bounds how many wait. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "foretokenctl/answer.h"
#include "foretokenctl/commands.h"
#include "foretokenctl/exit.h"
#include "foretokenctl/input.h"
#include "foretokenctl/line.h"
#include "foretokenctl/print.h"
#include "foretokenctl/progress.h"
#include "foretokenctl/resume.h"
#include "foretokenctl/session.h"

#define MODULE "batch"
#define CONCURRENCY_DEFAULT 16
#define CONCURRENCY_MAX 1024
#define WINDOW_PER_RUNNING 4 /* results that may wait for a slow line before them */
#define LINE_BYTES_MAX ((size_t)64 << 20)
#define ARENA_CHUNK ((size_t)16 << 10)
/* A service that restarts is asked again, for about ten seconds in all. One that is full says when;
 * who is refused again waits longer, up to BUSY_NS << BUSY_DOUBLINGS. */
#define TRIES_MAX 7
#define RETRY_NS 100000000
#define BUSY_NS 20000000
#define BUSY_DOUBLINGS 5
enum { GRPC_RESOURCE_EXHAUSTED = 8, GRPC_UNAVAILABLE = 14 };

enum job_state { JOB_FREE, JOB_RUNNING, JOB_WAITING, JOB_DONE };

struct batch;

struct job {
    struct batch *batch;
    enum job_state state;
    uint64_t line; /* of the input, from 1 */
    struct ft_arena *arena;
    struct ctl_line request;
    struct ft_buf message; /* the encoded request */
    struct ctl_answer answer;
    struct ft_rpc_stream *stream;
    struct ft_rpc_timer retry;
    struct ft_err err; /* what made us cancel */
    int n_tries;       /* that count: TRIES_MAX at most */
    int n_refused;     /* times that the service was full */
    struct ft_buf result;
    bool failed;
};

struct batch {
    struct ctl_session *session;
    const struct ctl_options *opts;
    FILE *in;
    char *text; /* of getline */
    size_t text_cap;
    uint64_t n_read, last_line; /* lines of the input; the last one whose result is there */
    bool in_ended;
    struct ctl_resume out;
    struct job *jobs; /* [window] */
    uint64_t window, concurrency;
    uint64_t first, next; /* jobs first .. next - 1 are in the ring */
    uint64_t n_running;   /* of them, at the service or about to be asked again */
    uint64_t n_asked;     /* of these, at the service */
    struct ctl_progress progress;
    int status; /* why it ends early; 0 */
};

static void stop(struct batch *batch, int status) {
    if (batch->status == CTL_EXIT_OK)
        batch->status = status;
    ft_rpc_loop_stop(batch->session->loop);
}

static void stop_out_of_memory(struct batch *batch) {
    stop(batch, ctl_exit_because(CTL_EXIT_OS, "no memory for the batch"));
}

/* ---- results -------------------------------------------------------------------------------- */

static void begin_result(struct job *job) {
    ft_buf_reset(&job->result);
    ft_buf_addf(&job->result, "{\"line\":%" PRIu64 ",", job->line);
    if (job->request.custom_id.ptr == NULL)
        return;
    ft_buf_add_c(&job->result, "\"custom_id\":");
    ft_buf_add_str(&job->result, job->request.custom_id);
    ft_buf_add_c(&job->result, ",");
}

static void free_job(struct job *job) {
    ft_arena_destroy(&job->arena);
    ctl_answer_fini(&job->answer);
    ft_buf_fini(&job->message);
    ft_buf_fini(&job->result);
    job->state = JOB_FREE;
}

/* Write what is ready, in order. */
static void write_results(struct batch *batch) {
    for (; batch->status == CTL_EXIT_OK && batch->first < batch->next; batch->first++) {
        struct job *job = &batch->jobs[batch->first % batch->window];
        if (job->state != JOB_DONE)
            break;
        fwrite(job->result.ptr, 1, job->result.len, batch->out.file);
        batch->progress.n_done++;
        batch->progress.n_failed += job->failed;
        free_job(job);
    }
    if (fflush(batch->out.file) != 0)
        stop(batch, ctl_exit_because(CTL_EXIT_OUTPUT, "cannot write the results"));
    ctl_progress_show(&batch->progress);
}

static void fail_job(struct job *job, const char *code, const char *text) {
    begin_result(job);
    ft_buf_addf(&job->result, "\"error\":{\"code\":\"%s\",\"message\":", code);
    ft_buf_add_json(&job->result, ft_str_c(text));
    ft_buf_add_c(&job->result, "}}\n");
    job->failed = true;
    job->state = JOB_DONE;
    if (job->result.failed)
        stop_out_of_memory(job->batch);
}

static void answer_job(struct job *job) {
    struct batch *batch = job->batch;
    begin_result(job);
    ctl_answer_json(&job->answer, &job->result);
    ft_buf_add_c(&job->result, "}\n");
    job->state = JOB_DONE;
    for (size_t i = 0; i < job->answer.n_choices; i++)
        batch->progress.n_tokens += job->answer.choices[i].last.usage.completion_tokens;
    if (job->result.failed || ctl_answer_failed(&job->answer))
        stop_out_of_memory(batch);
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void fill(struct batch *batch);
static void ask(void *user);

static void on_message(void *user, struct ft_str bytes) {
    struct job *job = user;
    struct ft_wire_generated message;
    if (job->err.code == FT_OK &&
        ctl_answer_take(&job->answer, bytes, true, &message, &job->err) != FT_OK)
        ft_rpc_stream_cancel(job->stream);
}

/* The service is full, or the client's share of it. Without a time it is so for good, but for what
 * stands between: a proxy may be full as well, and leave the time out. */
static bool is_busy(const struct ft_rpc_status *status) {
    return status->code == GRPC_RESOURCE_EXHAUSTED && status->retry_after_ms > 0;
}

static int64_t busy_wait_ns(struct job *job, const struct ft_rpc_status *status) {
    int n = job->n_refused < BUSY_DOUBLINGS ? job->n_refused : BUSY_DOUBLINGS;
    int64_t told_ns = (int64_t)status->retry_after_ms * 1000000, least_ns = (int64_t)BUSY_NS << n;
    job->n_refused++;
    return told_ns > least_ns ? told_ns : least_ns;
}

/* True when it is asked again later. A call that has said something has tokens behind it. What is
 * refused beside other lines of ours waits for these, however long they take: no try is lost. */
static bool retry(struct job *job, const struct ft_rpc_status *status) {
    bool transient = status->code == GRPC_UNAVAILABLE ||
                     (status->code == GRPC_RESOURCE_EXHAUSTED && !ctl_exit_too_large(status));
    bool counts = !is_busy(status) || job->batch->n_asked == 0;
    if (!transient || (counts && job->n_tries >= TRIES_MAX) || job->answer.request_id.len > 0)
        return false;
    int64_t wait_ns =
        is_busy(status) ? busy_wait_ns(job, status) : (int64_t)RETRY_NS << job->n_tries;
    job->n_tries += counts;
    job->state = JOB_WAITING;
    return ft_rpc_timer_set(job->batch->session->loop, &job->retry, ft_clock_now_ns() + wait_ns,
                            ask, job) == FT_OK;
}

/* A line has ended and left a place: the first that waits for one need not wait for its time. */
static void ask_waiting(struct batch *batch) {
    for (uint64_t i = batch->first; i < batch->next; i++) {
        struct job *job = &batch->jobs[i % batch->window];
        if (job->state != JOB_WAITING)
            continue;
        ft_rpc_timer_cancel(batch->session->loop, &job->retry);
        ask(job);
        return;
    }
}

static void on_done(void *user, const struct ft_rpc_status *status) {
    struct job *job = user;
    struct batch *batch = job->batch;
    char text[sizeof status->text + 96];
    job->stream = NULL;
    batch->n_asked--;
    if (batch->status != CTL_EXIT_OK || batch->session->signo != 0)
        return; /* all of them are being cancelled */
    if (job->err.code == FT_OK && retry(job, status))
        return;
    batch->n_running--;
    if (status->code == GRPC_UNAVAILABLE || is_busy(status)) { /* those to come fare no better */
        snprintf(text, sizeof text, "line %" PRIu64 ": %s; run the same command again to go on",
                 job->line, status->text);
        stop(batch,
             ctl_exit_because(is_busy(status) ? CTL_EXIT_AGAIN : CTL_EXIT_UNAVAILABLE, text));
        return;
    }
    if (job->err.code != FT_OK)
        fail_job(job, "INTERNAL", job->err.text);
    else if (status->code != 0)
        fail_job(job, ft_rpc_status_name(status->code), status->text);
    else if (!ctl_answer_complete(&job->answer))
        fail_job(job, "INTERNAL", "the stream ended without a finish reason");
    else
        answer_job(job);
    write_results(batch);
    ask_waiting(batch);
    fill(batch);
}

static const struct ft_rpc_stream_handlers handlers = {.on_message = on_message,
                                                       .on_done = on_done};

/* Send the request of a job, the first time or again. */
static void ask(void *user) {
    struct job *job = user;
    struct ctl_session *session = job->batch->session;
    struct ft_rpc_call_opts call = {0};
    struct ft_err err = {0};
    if (job->batch->opts->timeout_s > 0)
        call.deadline_ns = ft_clock_now_ns() + (int64_t)(job->batch->opts->timeout_s * 1e9);
    job->state = JOB_RUNNING;
    if (ft_rpc_stream_open(&job->stream, session->client, FT_WIRE_INFERENCE_SERVICE "Generate",
                           &call, &handlers, job, &err) != FT_OK) {
        stop(job->batch, ctl_exit_from_err(&err));
        return;
    }
    job->batch->n_asked++;
    if (ft_rpc_stream_send(job->stream, ft_buf_str(&job->message)) == FT_OK)
        ft_rpc_stream_half_close(job->stream);
}

/* ---- input ---------------------------------------------------------------------------------- */

static bool is_blank(struct ft_str text) {
    for (size_t i = 0; i < text.len; i++)
        if (strchr(" \t\r\n", text.ptr[i]) == NULL || text.ptr[i] == 0)
            return false;
    return true;
}

/* The line with that number, from 1; false at the end. */
static bool read_line(struct batch *batch, uint64_t number, struct ft_str *text) {
    ssize_t len = getline(&batch->text, &batch->text_cap, batch->in);
    if (len <= 0)
        return false;
    *text = (struct ft_str){batch->text, (size_t)len};
    if (number == 1)
        *text = ctl_input_unmarked(*text);
    return true;
}

/* The next line that holds something and has no result yet; false at the end. */
static bool next_line(struct batch *batch, struct ft_str *text) {
    while (read_line(batch, batch->n_read + 1, text))
        if (++batch->n_read > batch->last_line && !is_blank(*text))
            return true;
    if (ferror(batch->in))
        stop(batch, ctl_exit_because(CTL_EXIT_OS, "cannot read the input"));
    return false;
}

/* Make a job of a line: at the service, or done already when the line is no request. */
static void begin_job(struct batch *batch, struct ft_str text) {
    struct job *job = &batch->jobs[batch->next++ % batch->window];
    struct ft_err err = {0};
    *job = (struct job){.batch = batch, .line = batch->n_read, .state = JOB_RUNNING};
    ft_buf_init(&job->message, 0);
    ft_buf_init(&job->result, 0);
    job->arena = ft_arena_create(ARENA_CHUNK, 0);
    if (job->arena == NULL) {
        stop_out_of_memory(batch);
        return;
    }
    if (text.len > LINE_BYTES_MAX)
        ft_err_set(&err, FT_E_REQ_INVALID, MODULE, "%zu bytes: at most %zu", text.len,
                   LINE_BYTES_MAX);
    else
        ctl_line_read(batch->opts, job->arena, text, &job->request, &err);
    if (err.code != FT_OK) {
        fail_job(job, "INVALID_ARGUMENT", err.text);
        return;
    }
    const struct ft_wire_generate *request = &job->request.opts.request;
    ft_wire_encode_generate(request, &job->message);
    if (!ctl_answer_init(&job->answer, request->params.n) || job->message.failed) {
        stop_out_of_memory(batch);
        return;
    }
    batch->n_running++;
    ask(job);
}

/* Begin jobs while there is room; stop the loop when nothing is left to wait for. */
static void fill(struct batch *batch) {
    struct ft_str text;
    while (batch->status == CTL_EXIT_OK && !batch->in_ended &&
           batch->n_running < batch->concurrency && batch->next - batch->first < batch->window) {
        batch->in_ended = !next_line(batch, &text);
        if (batch->in_ended)
            break;
        begin_job(batch, text);
        write_results(batch);
    }
    if (batch->in_ended && batch->first == batch->next)
        ft_rpc_loop_stop(batch->session->loop);
}

/* Lines that hold something, for the bar; then back to the beginning. */
static int count_lines(struct batch *batch) {
    struct ft_str text;
    uint64_t n_lines = 0;
    while (read_line(batch, n_lines + 1, &text)) {
        n_lines++;
        batch->progress.n_all += !is_blank(text);
    }
    if (ferror(batch->in) || fseeko(batch->in, 0, SEEK_SET) != 0)
        return ctl_exit_because(CTL_EXIT_OS, "cannot read the input twice");
    if (batch->last_line > n_lines)
        return ctl_exit_because(CTL_EXIT_USAGE,
                                "the output has results of more lines than the input has");
    return CTL_EXIT_OK;
}

/* ---- the command ---------------------------------------------------------------------------- */

static int check_options(struct ctl_options *opts) {
    if (opts->n_words != 3)
        return ctl_exit_because(CTL_EXIT_USAGE, "batch takes two files: IN.jsonl OUT.jsonl");
    if (!opts->has_concurrency)
        opts->concurrency = CONCURRENCY_DEFAULT;
    if (opts->concurrency < 1 || opts->concurrency > CONCURRENCY_MAX)
        return ctl_exit_because(CTL_EXIT_USAGE, "--concurrency must be 1 to 1024");
    return CTL_EXIT_OK;
}

/* Opening a FIFO would wait for its writer, and end in the same refusal. */
static enum ft_code open_input(struct batch *batch, const char *path, struct ft_err *err) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return ctl_exit_unopened(err, errno, path);
    batch->in = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? fdopen(fd, "r") : NULL;
    if (batch->in != NULL)
        return FT_OK;
    close(fd);
    return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                      "IN must be a file, %s is none: it is read twice", path);
}

static int open_files(struct batch *batch) {
    const char *in = batch->opts->words[1].ptr, *out = batch->opts->words[2].ptr;
    struct ft_err err = {0};
    if (open_input(batch, in, &err) != FT_OK)
        return ctl_exit_from_err(&err);
    if (ctl_resume_open(&batch->out, out, &err) != FT_OK)
        return err.code == FT_E_PROC_OS ? ctl_exit_because(CTL_EXIT_OUTPUT, err.text)
                                        : ctl_exit_from_err(&err);
    batch->last_line = batch->out.last_line;
    batch->progress.n_done = batch->progress.n_before = batch->out.n_done;
    batch->progress.n_failed = batch->out.n_failed;
    batch->jobs = calloc(batch->window, sizeof *batch->jobs);
    if (batch->jobs == NULL)
        return ctl_exit_because(CTL_EXIT_OS, "no memory for the batch");
    return count_lines(batch);
}

static int run(struct batch *batch) {
    batch->progress.bar =
        batch->opts->has_progress ? batch->opts->progress : isatty(STDERR_FILENO) != 0;
    batch->progress.begin_ns = ft_clock_now_ns();
    ctl_progress_show(&batch->progress);
    fill(batch);
    if (batch->status == CTL_EXIT_OK && !(batch->in_ended && batch->first == batch->next))
        ft_rpc_loop_run(batch->session->loop);
    ctl_progress_end(&batch->progress);
    if (batch->session->signo != 0)
        return CTL_EXIT_SIGNAL + batch->session->signo;
    if (batch->status == CTL_EXIT_OK && batch->progress.n_failed > 0)
        return CTL_EXIT_DATA;
    return batch->status;
}

/* Jobs that are still there belong to calls that closing the session has ended. */
static void close_batch(struct batch *batch) {
    for (uint64_t i = batch->first; batch->jobs != NULL && i < batch->next; i++)
        free_job(&batch->jobs[i % batch->window]);
    free(batch->jobs);
    free(batch->text);
    if (batch->in != NULL)
        fclose(batch->in);
}

int ctl_batch_run(struct ctl_options *opts) {
    struct ctl_session session = {0};
    struct batch batch = {.session = &session, .opts = opts};
    struct ft_err err = {0};
    int status = check_options(opts);
    if (status != CTL_EXIT_OK)
        return status;
    batch.concurrency = opts->concurrency;
    batch.window = batch.concurrency * WINDOW_PER_RUNNING;
    status = open_files(&batch); /* before the session, which blocks signals */
    if (status == CTL_EXIT_OK)
        status = ctl_session_open(&session, opts);
    if (status == CTL_EXIT_OK)
        status = run(&batch);
    if (batch.status == CTL_EXIT_OK)
        batch.status = status; /* late calls find the end */
    for (uint64_t i = batch.first; batch.jobs != NULL && i < batch.next; i++)
        if (session.loop != NULL)
            ft_rpc_timer_cancel(session.loop, &batch.jobs[i % batch.window].retry);
    ctl_session_close(&session);
    close_batch(&batch);
    if (ctl_resume_close(&batch.out, &err) != FT_OK && status == CTL_EXIT_OK)
        status = ctl_exit_because(CTL_EXIT_OUTPUT, err.text);
    return status;
}
