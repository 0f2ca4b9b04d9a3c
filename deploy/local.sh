#!/bin/bash
# Run foretoken on this machine from a build tree: a target worker, a draft worker when there is a
# draft model, and the coordinator. For development; it installs nothing.
#
# usage: deploy/local.sh --target-model DIR [option ...] [-- COMMAND [ARGUMENT ...]]
#
#   --target-model DIR  checkpoint of the model that decides
#   --draft-model DIR   checkpoint of the model that drafts; without it decoding is plain
#   --listen ADDR       unix:PATH or HOST:PORT; default 127.0.0.1:50051, with COMMAND a socket in
#                       the run directory
#   --run-dir DIR       sockets and logs; default: a fresh one, removed at the end
#   --bin-dir DIR       programs; default: build/release/bin, else build/quickstart/bin
#   --set KEY=VALUE     parameter of the coordinator; --set target.KEY=VALUE and
#                       --set draft.KEY=VALUE of a worker; repeatable
#   --ready-timeout S   longest wait for a process to be ready, default 300 seconds
#
# With COMMAND: runs it with FORETOKEN_ENDPOINT set, then stops everything and exits with its
# status. Without: serves until SIGINT or SIGTERM (exit 0), or until a process ends (exit with its
# status, or 1). A process that ends before it is ready: its last lines of log and its status. Bad
# arguments: 64.
# shellcheck disable=SC2015,SC2094,SC2317 # tests before ||; a pipe's two ends; what traps call
set -u

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
stop_grace_s=10 # past the coordinator's own shutdown_timeout_ms

say() {
    printf 'local.sh: %s\n' "$*" >&2
}

usage_error() {
    say "$*"
    say "try $0 --help"
    exit 64
}

# ---- arguments --------------------------------------------------------------------------------

target_model='' draft_model='' listen='' run_dir='' bin_dir='' ready_timeout_s=300
declare -a target_args=() draft_args=() coordinator_args=() user_command=()

while [ $# -gt 0 ]; do
    case $1 in
    --help)
        sed -n '2,/^# shellcheck/{/^# shellcheck/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
        exit 0
        ;;
    --)
        shift
        [ $# -gt 0 ] || usage_error "no command after --"
        user_command=("$@")
        break
        ;;
    --target-model | --draft-model | --listen | --run-dir | --bin-dir | --set | --ready-timeout)
        [ $# -ge 2 ] && [ -n "$2" ] || usage_error "$1 needs a value"
        case $1 in
        --target-model) target_model=$2 ;;
        --draft-model) draft_model=$2 ;;
        --listen) listen=$2 ;;
        --run-dir) run_dir=$2 ;;
        --bin-dir) bin_dir=$2 ;;
        --ready-timeout) ready_timeout_s=$2 ;;
        --set)
            case $2 in
            =* | .*) usage_error "--set wants [target.|draft.]KEY=VALUE, got '$2'" ;;
            target.*=*) target_args+=(--set "${2#target.}") ;;
            draft.*=*) draft_args+=(--set "${2#draft.}") ;;
            *.*=* | *=*)
                [[ ${2%%=*} != *.* ]] || usage_error "no process '${2%%.*}': target. or draft."
                coordinator_args+=(--set "$2")
                ;;
            *) usage_error "--set wants [target.|draft.]KEY=VALUE, got '$2'" ;;
            esac
            ;;
        esac
        shift 2
        ;;
    *) usage_error "unknown argument '$1'" ;;
    esac
done

[ -n "$target_model" ] || usage_error "--target-model is missing"
[ -d "$target_model" ] || usage_error "--target-model: no directory '$target_model'"
[ -z "$draft_model" ] || [ -d "$draft_model" ] ||
    usage_error "--draft-model: no directory '$draft_model'"
[ -n "$draft_model" ] || [ ${#draft_args[@]} -eq 0 ] ||
    usage_error "--set draft.* without --draft-model"
[[ $ready_timeout_s =~ ^[1-9][0-9]{0,4}$ ]] ||
    usage_error "--ready-timeout is '$ready_timeout_s', wants seconds, 1 .. 99999"
if [ -z "$bin_dir" ]; then
    bin_dir=$root/build/release/bin
    [ -x "$bin_dir/foretoken-coordinator" ] || bin_dir=$root/build/quickstart/bin
fi
for program in foretoken-target foretoken-draft foretoken-coordinator; do
    [ -x "$bin_dir/$program" ] ||
        usage_error "no program $bin_dir/$program: build first, or --bin-dir"
done

# ---- processes --------------------------------------------------------------------------------

declare -A pid_of=()     # name -> pid of what runs
declare -A ready_fd_of=() # name -> read end of its readiness pipe
remove_run_dir=''
command_pid=''

is_running() {
    kill -0 "$1" 2>/dev/null
}

# The pipe's write end is in the new process alone, so that its end, however it comes, is an end of
# file here.
start() { # NAME PROGRAM ARGUMENT...
    local name=$1 program=$2 both ready
    shift 2
    mkfifo -m 600 "$run_dir/$name.ready" || exit 71
    exec {both}<>"$run_dir/$name.ready" {ready}<"$run_dir/$name.ready"
    rm -f "$run_dir/$name.ready"
    "$bin_dir/$program" "$@" --ready_fd 3 --die_with_parent \
        3>&"$both" {both}>&- {ready}<&- </dev/null >"$run_dir/$name.log" 2>&1 &
    pid_of[$name]=$!
    exec {both}>&-
    ready_fd_of[$name]=$ready
}

wait_ready() { # NAME
    local name=$1 fd=${ready_fd_of[$1]} line='' status
    read -r -t "$ready_timeout_s" -u "$fd" line
    status=$?
    exec {fd}<&-
    [ "$line" != ready ] || return 0
    if [ $status -gt 128 ]; then
        say "$name is not ready after $ready_timeout_s s; the end of its log:"
        tail -n 20 "$run_dir/$name.log" >&2
        exit 75
    fi
    wait "${pid_of[$name]}"
    status=$?
    say "$name ended with status $status before it was ready; the end of its log:"
    tail -n 20 "$run_dir/$name.log" >&2
    unset "pid_of[$name]"
    exit $((status == 0 ? 70 : status))
}

# SIGTERM, a bounded wait, SIGKILL.
stop() { # NAME...
    local name pid
    for name; do
        [ -z "${pid_of[$name]:-}" ] || kill -TERM "${pid_of[$name]}" 2>/dev/null
    done
    for name; do
        pid=${pid_of[$name]:-}
        [ -n "$pid" ] || continue
        # tail ends at once when its output is a pipe that nobody reads.
        timeout "$stop_grace_s" tail -s 0.02 --pid="$pid" -f /dev/null >/dev/null
        if is_running "$pid"; then
            say "$name does not stop: killed"
            kill -KILL "$pid"
        fi
        wait "$pid" 2>/dev/null
        unset "pid_of[$name]"
    done
}

at_exit() {
    trap '' INT TERM HUP PIPE
    stop coordinator # first: its requests end by its own rules, with the workers still there
    stop target draft
    [ -z "$remove_run_dir" ] || rm -rf "$remove_run_dir"
}

at_signal() {
    trap '' INT TERM HUP
    [ -n "$command_pid" ] || exit 0
    kill -TERM "$command_pid" 2>/dev/null
    wait "$command_pid"
    exit
}

trap at_exit EXIT
trap at_signal INT TERM HUP
trap 'exit 141' PIPE # nobody reads what is said here

if [ -z "$run_dir" ]; then
    run_dir=$(mktemp -d "${TMPDIR:-/tmp}/foretoken.XXXXXX") || exit 71
    remove_run_dir=$run_dir
else
    [ -d "$run_dir" ] || mkdir -m 700 "$run_dir" || exit 71
fi
[ ${#run_dir} -le 80 ] || usage_error "--run-dir: $run_dir is too long for a socket's path"
if [ -z "$listen" ]; then
    listen=127.0.0.1:50051
    [ ${#user_command[@]} -eq 0 ] || listen=unix:$run_dir/foretoken.sock
fi

start target foretoken-target --model "$target_model" --listen "unix:$run_dir/target.sock" \
    "${target_args[@]}"
if [ -n "$draft_model" ]; then
    start draft foretoken-draft --model "$draft_model" --listen "unix:$run_dir/draft.sock" \
        "${draft_args[@]}"
    coordinator_args+=(--draft_endpoint "unix:$run_dir/draft.sock")
fi
wait_ready target
[ -z "$draft_model" ] || wait_ready draft
start coordinator foretoken-coordinator --listen "$listen" \
    --target_endpoint "unix:$run_dir/target.sock" "${coordinator_args[@]}"
wait_ready coordinator

# ---- with a command ---------------------------------------------------------------------------

if [ ${#user_command[@]} -gt 0 ]; then
    export FORETOKEN_ENDPOINT=$listen
    # In the background, so that a signal to this script is acted on at once; SIGINT, which bash
    # ignores there, is given back.
    (
        trap - INT
        exec "${user_command[@]}"
    ) <&0 &
    command_pid=$!
    wait "$command_pid"
    status=$?
    command_pid=''
    for name in "${!pid_of[@]}"; do
        is_running "${pid_of[$name]}" || say "$name ended while the command ran"
    done
    exit "$status"
fi

# ---- in the foreground ------------------------------------------------------------------------

say "serving on $listen; logs in $run_dir; Ctrl-C stops"
wait -n "${pid_of[@]}"
status=$?
for name in "${!pid_of[@]}"; do
    is_running "${pid_of[$name]}" && continue
    say "$name ended with status $status; the end of its log:"
    tail -n 20 "$run_dir/$name.log" >&2
    unset "pid_of[$name]"
done
exit $((status == 0 ? 1 : status))
