#include "common/base/parent.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

enum ft_code ft_parent_follow(pid_t parent, struct ft_err *err) {
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0)
        return ft_err_set_os(err, FT_E_PROC_OS, errno, "parent", "die_with_parent");
    /* The kernel tells of deaths from now on; one before that shows in who the parent is. */
    if (getppid() != parent)
        raise(SIGTERM);
    return FT_OK;
}
