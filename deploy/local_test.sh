#!/bin/bash
# Tests of local.sh with the real programs and the demo pair.   usage: deploy/local_test.sh BIN_DIR
set -u

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${1:?usage: $0 BIN_DIR}
models=$here/../models
work=$(mktemp -d)
failures=0
trap 'rm -rf "$work"' EXIT

local_sh() {
    "$here/local.sh" --bin-dir "$bin" --target-model "$models/demo-target" "$@"
}

check() { # WHAT CONDITION...
    local what=$1
    shift
    if "$@"; then
        echo "ok   $what"
    else
        echo "FAIL $what"
        tail -n 20 "$work/out"
        failures=$((failures + 1))
    fi
}

# The exit status of a call, its output in $work/out.
expect() { # STATUS WHAT ARGUMENT...
    local want=$1 what=$2 got
    shift 2
    "$@" >"$work/out" 2>&1
    got=$?
    check "$what (status $got)" [ "$got" -eq "$want" ]
}

says() {
    grep -q -- "$1" "$work/out"
}

# A server in the foreground, its processes' sockets in $work/run. Returns when it serves.
serve() {
    local line
    mkfifo "$work/says"
    "$here/local.sh" --bin-dir "$bin" --target-model "$models/demo-target" \
        --draft-model "$models/demo-draft" --run-dir "$work/run" --listen "unix:$work/run/s" \
        2>"$work/says" &
    server=$!
    exec {says}<"$work/says"
    while read -r -u "$says" line && [[ $line != *'serving on'* ]]; do :; done
    cat <&"$says" >"$work/out" &
    drain=$!
    exec {says}<&-
    rm "$work/says"
}

# The server has ended: its status is in $status, nothing of it is left.
served() {
    wait "$server"
    status=$?
    wait "$drain"
    rm -rf "$work/run"
    # A killed script's processes are told by the kernel and take a moment to end.
    for _ in $(seq 50); do
        pgrep -f "unix:$work/run" >/dev/null || return 0
        sleep 0.1
    done
    return 1
}

pid_of() {
    pgrep -f "foretoken-$1 .*unix:$work/run" | head -n 1
}

expect 64 "no target model is refused" "$here/local.sh" --bin-dir "$bin"
expect 64 "a folder that is not there is refused" "$here/local.sh" --target-model /nonexistent
expect 64 "an unknown argument is refused" local_sh --frobnicate
expect 64 "--set for no process is refused" local_sh --set other.key=1
expect 64 "--set without a value is refused" local_sh --set key
expect 64 "-- without a command is refused" local_sh --

expect 78 "a bad model ends with the worker's status" local_sh --target-model "$work" -- true
check "and shows the worker's log" says 'config.json'
expect 78 "a bad parameter ends with the coordinator's status" local_sh --set no_such_key=1 -- true
expect 78 "a bad parameter of the draft is the draft's" \
    local_sh --draft-model "$models/demo-draft" --set draft.no_such_key=1 -- true
check "and names it" says 'draft ended'

expect 7 "the command's status is returned" local_sh -- sh -c 'exit 7'
expect 0 "the command reaches the service" \
    local_sh --draft-model "$models/demo-draft" --set num_speculative_tokens=2 -- \
    "$bin/foretokenctl" generate --prompt 'Once upon a time' --max_tokens 8 --temperature 0 --stats
check "speculation is on" says 'drafted'
expect 0 "without a draft model it decodes plainly" local_sh -- \
    "$bin/foretokenctl" generate --prompt 'Once upon a time' --max_tokens 8 --temperature 0 --stats
check "and says so" says 'nothing drafted'
expect 0 "a port that the system chose is said" local_sh --listen 127.0.0.1:0 \
    --run-dir "$work/run" -- grep -E 'serving listen 127\.0\.0\.1:[1-9]' "$work/run/coordinator.log"
rm -rf "$work/run"
echo 'from stdin' >"$work/in"
expect 0 "the command has the standard input" local_sh -- grep -q stdin <"$work/in"

local_sh -- true 2>"$work/out" | :
check "output that nobody reads leaves the processes their time to end" [ ! -s "$work/out" ]
mkdir "$work/tmp"
TMPDIR=$work/tmp local_sh --listen "unix:$work/s" 2>&1 | :
check "messages that nobody reads end it (status ${PIPESTATUS[0]})" [ "${PIPESTATUS[0]}" -eq 141 ]
check "and leave no run directory" rmdir "$work/tmp"

serve
kill -TERM "$server"
check "SIGTERM stops everything" served
check "with status 0" [ "$status" -eq 0 ]

for role in target draft coordinator; do
    serve
    kill -KILL "$(pid_of $role)"
    check "a killed $role ends the rest" served
    check "with its status" [ "$status" -eq 137 ]
    check "and is named" says "$role ended with status 137"
done

serve
kill -KILL "$server"
check "nothing outlives a killed script" served

mkfifo "$work/started"
"$here/local.sh" --bin-dir "$bin" --target-model "$models/demo-target" --run-dir "$work/run" -- \
    sh -c "trap 'exit 9' TERM; echo >'$work/started'; read -r _" \
    >"$work/out" 2>&1 < <(exec tail -f /dev/null) &
server=$!
read -r _ <"$work/started"
kill -TERM "$server"
wait "$server"
check "SIGTERM ends the command too" [ $? -eq 9 ]
check "and the processes" test -z "$(pgrep -f "unix:$work/run")"

[ "$failures" -eq 0 ]
