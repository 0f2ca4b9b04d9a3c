#include "coordinator/app.h"

const char *co_app_mode(const struct co_app *app, const char **reason) {
    *reason = "";
    if (app->config.num_speculative_tokens == 0)
        *reason = "num_speculative_tokens is 0";
    else if (app->draft == NULL)
        *reason = "no draft worker configured";
    else if (!co_peer_up(app->draft))
        *reason = co_peer_trouble(app->draft);
    return **reason == 0 ? "draft_model" : "plain";
}
