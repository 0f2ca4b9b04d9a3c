#include "foretokenctl/watch.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/wire/admin.h"
#include "foretokenctl/env.h"
#include "foretokenctl/exit.h"
#include "foretokenctl/print.h"
#include "foretokenctl/screen.h"

#define COLUMNS_DEFAULT 80
#define COLUMNS_MAX 200
#define KEY_LOOK_NS 50000000
/* An answer comes between two steps of the workers; who waits longer sees that. */
#define CALL_TIMEOUT_NS 3000000000

#define SCREEN_ON "\x1B[?1049h\x1B[?25l" /* the other buffer, no cursor */
#define SCREEN_OFF "\x1B[?25h\x1B[?1049l"
#define HOME "\x1B[H"
#define LINE_END "\x1B[K\r\n"
#define CLEAR_BELOW "\x1B[J"

struct watch {
    struct ctl_session session;
    struct ctl_options *opts;
    bool is_screen; /* standard output is a terminal, and --json was not asked for */
    bool has_keys;  /* so is standard input */
    struct termios modes;
    struct ctl_screen_past past;
    struct ft_buf body, frame;
    bool shown; /* a frame, and with the first one the terminal's other buffer */
    bool ended;
};

/* ---- terminal ------------------------------------------------------------------------------- */

static int write_all(struct ft_str text) {
    while (text.len > 0) {
        ssize_t n = write(STDOUT_FILENO, text.ptr, text.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ctl_exit_because(CTL_EXIT_OUTPUT, "standard output: cannot write");
        text = (struct ft_str){text.ptr + n, text.len - (size_t)n};
    }
    return CTL_EXIT_OK;
}

static void terminal_begin(struct watch *watch) {
    if (!watch->is_screen)
        return;
    if (watch->has_keys && tcgetattr(STDIN_FILENO, &watch->modes) == 0) {
        struct termios raw = watch->modes;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_cc[VMIN] = 0;
        raw.c_cc[VTIME] = 0;
        raw.c_cc[VSUSP] = _POSIX_VDISABLE; /* a shell would find the terminal as it is here */
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    } else {
        watch->has_keys = false;
    }
}

static void terminal_end(struct watch *watch) {
    if (!watch->is_screen)
        return;
    if (watch->shown)
        write_all(ft_str_c(SCREEN_OFF));
    if (watch->has_keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &watch->modes);
}

static void size_of(const struct watch *watch, int *columns, int *lines) {
    struct winsize size = {0};
    *columns = COLUMNS_DEFAULT;
    *lines = 1000;
    if (!watch->is_screen || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return;
    *columns = size.ws_col < CTL_SCREEN_COLUMNS_MIN ? CTL_SCREEN_COLUMNS_MIN : size.ws_col;
    *columns = *columns > COLUMNS_MAX ? COLUMNS_MAX : *columns;
    *lines = size.ws_row > 0 ? size.ws_row : 1000;
}

/* One write: each line over the one before, so that nothing is seen to vanish. */
static int show_frame(struct watch *watch, int lines) {
    struct ft_str body = ft_buf_str(&watch->body);
    ft_buf_reset(&watch->frame);
    if (!watch->shown)
        ft_buf_add_c(&watch->frame, SCREEN_ON);
    watch->shown = true;
    ft_buf_add_c(&watch->frame, HOME);
    for (size_t at = 0, n = 0; at < body.len && (int)n < lines; n++) {
        const char *end = memchr(body.ptr + at, '\n', body.len - at);
        size_t len = end != NULL ? (size_t)(end - body.ptr) - at : body.len - at;
        if (n > 0)
            ft_buf_add_c(&watch->frame, LINE_END);
        ft_buf_add(&watch->frame, body.ptr + at, len);
        at += len + 1;
    }
    ft_buf_add_c(&watch->frame, "\x1B[K" CLEAR_BELOW);
    if (watch->frame.failed)
        return ctl_exit_because(CTL_EXIT_OS, "no memory for the screen");
    return write_all(ft_buf_str(&watch->frame));
}

/* ---- asking --------------------------------------------------------------------------------- */

/* A line at the top of the last numbers, which may be old. */
static void add_trouble(struct watch *watch, const struct ft_rpc_status *status, int columns) {
    struct ft_buf old = watch->body;
    char text[256];
    int n = snprintf(text, sizeof text, "NO ANSWER: %s: %s", ft_rpc_status_name(status->code),
                     status->text);
    size_t len = n < 0 ? 0 : strlen(text);
    size_t room = (size_t)columns < len ? (size_t)columns : len;
    ft_buf_init(&watch->body, 0);
    ctl_print_escape(&watch->body, (struct ft_str){text, room}, true);
    ft_buf_add_c(&watch->body, "\n");
    struct ft_str rest = ft_buf_str(&old);
    const char *first_end = rest.len > 0 ? memchr(rest.ptr, '\n', rest.len) : NULL;
    if (first_end != NULL) /* in place of the title, which speaks of a state that is past */
        ft_buf_add(&watch->body, first_end + 1, rest.len - (size_t)(first_end + 1 - rest.ptr));
    ft_buf_fini(&old);
}

/* The answer into watch->body. Exit status; a service that does not answer is none. */
static int ask(struct watch *watch, int columns, ctl_session_render_fn *line, bool *answered) {
    struct ctl_session *session = &watch->session;
    struct ft_wire_stats stats;
    struct ft_err err = {0};
    session->call.deadline_ns = ft_clock_now_ns() + CALL_TIMEOUT_NS;
    ft_buf_reset(&session->reply);
    ft_arena_reset(session->arena);
    struct ft_rpc_status status =
        ft_rpc_client_unary_sync(session->client, FT_WIRE_ADMIN_SERVICE "GetStats",
                                 ft_buf_str(&session->message), &session->call, &session->reply);
    *answered = status.code == 0;
    if (session->signo != 0)
        return CTL_EXIT_OK;
    if (!*answered && !watch->is_screen)
        return ctl_exit_from_status(&status);
    if (!*answered) {
        add_trouble(watch, &status, columns);
        return CTL_EXIT_OK;
    }
    ft_buf_reset(&watch->body);
    if (watch->opts->json)
        return line(session, true, &watch->body);
    if (ft_wire_decode_stats(ft_buf_str(&session->reply), session->arena, &stats, &err) != FT_OK)
        return ctl_exit_because(CTL_EXIT_PROTOCOL, err.text);
    struct ctl_screen_opts opts = {columns, watch->is_screen && ctl_env_utf8(), watch->is_screen};
    ctl_screen_add(&stats, &opts, &watch->past, &watch->body);
    return CTL_EXIT_OK;
}

/* Until the next answer is due, or somebody wants to leave. */
static void wait_keys(struct watch *watch, int64_t until_ns) {
    while (watch->session.signo == 0 && !watch->ended && ft_clock_now_ns() < until_ns) {
        struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
        char keys[16];
        if (watch->has_keys && poll(&in, 1, 0) == 1) {
            ssize_t n = read(STDIN_FILENO, keys, sizeof keys);
            watch->has_keys = n > 0;
            for (ssize_t i = 0; i < n; i++)
                watch->ended = watch->ended || keys[i] == 'q' || keys[i] == 'Q' || keys[i] == 27;
        }
        int64_t look_ns = ft_clock_now_ns() + KEY_LOOK_NS;
        ft_rpc_loop_step(watch->session.loop, look_ns < until_ns ? look_ns : until_ns);
    }
}

static int run(struct watch *watch, ctl_session_render_fn *line) {
    double interval_s = watch->opts->has_interval ? watch->opts->interval_s : 1;
    int status = CTL_EXIT_OK;
    while (status == CTL_EXIT_OK && watch->session.signo == 0 && !watch->ended) {
        int64_t begin_ns = ft_clock_now_ns();
        int columns, lines;
        bool answered;
        size_of(watch, &columns, &lines);
        status = ask(watch, columns, line, &answered);
        if (watch->session.signo != 0)
            break;
        if (status == CTL_EXIT_OK && !watch->is_screen && !watch->opts->json)
            ft_buf_add_c(&watch->body, "\n");
        if (status == CTL_EXIT_OK)
            status =
                watch->is_screen ? show_frame(watch, lines) : write_all(ft_buf_str(&watch->body));
        wait_keys(watch, begin_ns + (int64_t)(interval_s * 1e9));
    }
    return status;
}

int ctl_watch(struct ctl_options *opts, ctl_session_render_fn *line) {
    struct watch watch = {.opts = opts};
    if (opts->has_interval && !(opts->interval_s >= 0.1 && opts->interval_s <= 3600))
        return ctl_exit_because(CTL_EXIT_USAGE, "--interval must be 0.1 to 3600 seconds");
    watch.is_screen = !opts->json && isatty(STDOUT_FILENO);
    watch.has_keys = watch.is_screen && isatty(STDIN_FILENO);
    ft_buf_init(&watch.body, 0);
    ft_buf_init(&watch.frame, 0);
    int status = ctl_session_open(&watch.session, opts);
    if (status == CTL_EXIT_OK) {
        terminal_begin(&watch);
        status = run(&watch, line);
        terminal_end(&watch);
    }
    ft_buf_fini(&watch.body);
    ft_buf_fini(&watch.frame);
    ctl_session_close(&watch.session);
    return status;
}
