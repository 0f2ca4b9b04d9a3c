/* The echo service of tests/support as a program, for clients of other languages. Listens on the
 * endpoints given, prints one line with them ("ready 127.0.0.1:PORT unix:PATH") and serves until
 * SIGTERM. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "support/rpc_echo.h"

static void on_signal(void *user, int signo) {
    (void)signo;
    ft_rpc_loop_stop(user);
}

static enum ft_code listen_all(struct ft_rpc_server *server, int argc, char **argv,
                               struct ft_err *err) {
    printf("ready");
    for (int i = 1; i < argc; i++) {
        int port = 0;
        enum ft_code code = ft_rpc_server_listen(server, argv[i], &port, err);
        if (code != FT_OK)
            return code;
        if (port == 0)
            printf(" %s", argv[i]);
        else
            printf(" %.*s:%d", (int)(strrchr(argv[i], ':') - argv[i]), argv[i], port);
    }
    printf("\n");
    fflush(stdout);
    return FT_OK;
}

int main(int argc, char **argv) {
    struct ft_err err = {0};
    struct rpc_echo echo = {0};
    struct ft_rpc_loop *loop = NULL;
    struct ft_rpc_server *server = NULL;
    struct ft_rpc_server_opts opts = {
        .methods = k_rpc_echo_methods, .n_methods = k_rpc_echo_n_methods, .service = &echo};
    ft_log_init("rpc_echo_server", FT_LOG_INFO);
    ft_rpc_signals_block();
    enum ft_code code = ft_rpc_loop_create(&loop, 0, &err);
    if (code == FT_OK)
        code = ft_rpc_loop_on_signal(loop, on_signal, loop, &err);
    if (code == FT_OK)
        code = ft_rpc_server_create(&server, loop, &opts, &err);
    if (code == FT_OK)
        code = listen_all(server, argc, argv, &err);
    if (code == FT_OK)
        code = ft_rpc_server_start(server, &err);
    if (code == FT_OK)
        ft_rpc_loop_run(loop);
    else
        ft_error("rpc_echo_server why %s", err.text);
    ft_rpc_server_close(&server, 1000000000);
    ft_rpc_loop_destroy(&loop);
    return ft_code_exit_status(code);
}
