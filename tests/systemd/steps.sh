# The steps of run.sh, in order: each leaves the service running as it found it, but for the last
# two, which remove it and try the tarball.
steps=(install_starts_the_demo_pair generate_answers journal_has_fields sandbox_is_in_force
    config_check_finds_what_is_wrong reload_takes_what_it_can workers_are_killed_alone
    coordinator_is_killed_alone watchdog_ends_a_coordinator_that_hangs
    watchdog_ends_a_worker_that_hangs stream_survives_a_restart_of_the_target
    drain_finishes_what_runs wrong_configuration_is_not_retried reboot_brings_it_back
    upgrade_restarts_it removal_and_purge_leave_nothing tarball_serves_from_opt)

install_starts_the_demo_pair() {
    find "$machine" -xdev -path "$machine/run" -prune -o -path "$machine/proc" -prune -o -print |
        grep -vE '/var/(log|lib/(dpkg|systemd|apt)|cache)/|/tmp/' | sort >"$work/before"
    cp "$deb" "$machine/root/foretoken.deb"
    inside dpkg -i /root/foretoken.deb >"$work/dpkg.log" 2>&1 || {
        cat "$work/dpkg.log"
        fail "dpkg -i: a dependency beyond a minimal system?"
    }
    is_serving || fail "dpkg -i returned and the demo pair does not serve"
    [ "$(property foretoken-coordinator Type)" = notify ] || fail "Type=notify"
    inside systemctl is-enabled --quiet foretoken.target foretoken-coordinator.service \
        foretoken-draft.service foretoken-target.service foretoken-mps.service || fail "enabled"
    [ "$(property foretoken-mps ActiveState) $(property foretoken-mps ConditionResult)" = \
        "inactive no" ] || fail "without a GPU the MPS unit is skipped"
    has_status foretoken-target "loaded, listening on unix:/run/foretoken/target.sock" ||
        fail "the target's status"
    ok "dpkg -i: user, folders, units; the demo pair serves when it returns"
}

generate_answers() {
    local text
    text=$(generate) || fail "foretokenctl generate"
    [ ${#text} -gt 20 ] || fail "a text of some length, got '$text'"
    inside foretokenctl generate --prompt x --max-tokens 24 --stats 2>&1 | grep -q drafted ||
        fail "speculation is on"
    first_text=$text
    ok "foretokenctl generate: '${text:0:40}...'"
}

journal_has_fields() {
    since=today
    [ -n "$(journal foretoken-coordinator FORETOKEN_EVENT=serving FORETOKEN_ROLE=coordinator \
        FORETOKEN_SPECULATION=draft_model PRIORITY=6)" ] || fail "fields of the line 'serving'"
    [ "$(inside journalctl -q -o json -n 1 FORETOKEN_EVENT=ready FORETOKEN_ROLE=target |
        grep -c '"SYSLOG_IDENTIFIER":"foretoken-target"')" = 1 ] || fail "SYSLOG_IDENTIFIER"
    ok "journal: event, role, keys and priority are fields"
}

sandbox_is_in_force() {
    local pid unit
    for unit in $services; do
        pid=$(pid_of "$unit")
        inside grep -q '^NoNewPrivs:.*1$' "/proc/$pid/status" || fail "$unit NoNewPrivs"
        inside grep -q '^Seccomp:.*2$' "/proc/$pid/status" || fail "$unit Seccomp"
        inside grep -q '^CapEff:.*0000000000000000$' "/proc/$pid/status" || fail "$unit CapEff"
        [ "$(inside stat -c %U "/proc/$pid")" = foretoken ] || fail "$unit runs as foretoken"
    done
    [ "$(inside stat -c '%a %U' /run/foretoken)" = "750 foretoken" ] || fail "/run/foretoken"
    [ "$(inside stat -c %a /run/foretoken/target.sock)" = 600 ] || fail "mode of target.sock"
    [ "$(inside stat -c %a /run/foretoken/draft.sock)" = 600 ] || fail "mode of draft.sock"
    # Each process that ends gives its shared memory back.
    [ -z "$(inside ls /dev/shm)" ] || fail "names in /dev/shm: $(inside ls /dev/shm)"
    ok "sandbox: no privileges, seccomp, own user, sockets 0600"
}

config_check_finds_what_is_wrong() {
    inside foretokenctl config check >/dev/null || fail "the shipped file is right"
    inside sed -e 's|^target_endpoint.*|target_endpoint = unix:/run/else|' \
        -e 's/^listen = 127.*/&\nmax_num_seq = 3/' /etc/foretoken/foretoken.conf \
        >"$machine/root/wrong.conf"
    inside foretokenctl config check /root/wrong.conf >"$work/check"
    [ $? -eq 78 ] || fail "config check of a wrong file"
    grep -q "wrong.conf:[0-9]*: unknown parameter 'max_num_seq'.*'max_num_seqs'" "$work/check" ||
        fail "config check names line and nearest key: $(cat "$work/check")"
    ok "foretokenctl config check"
}

edit_conf() { # SED-SCRIPT
    inside sed -i "$1" /etc/foretoken/foretoken.conf
}

reload_takes_what_it_can() {
    local pid
    pid=$(pid_of foretoken-coordinator)
    now
    edit_conf 's/^num_speculative_tokens.*/&\nmax_queue = 7\nmax_num_seqs = 9/'
    inside systemctl reload foretoken-coordinator || fail "systemctl reload"
    wait_until 30 "the log of the reload" says foretoken-coordinator reload-done
    [ -n "$(journal foretoken-coordinator FORETOKEN_EVENT=reloaded FORETOKEN_KEY=max_queue)" ] ||
        fail "max_queue is reloaded"
    [ -n "$(journal foretoken-coordinator FORETOKEN_EVENT=reload-refused \
        FORETOKEN_KEY=max_num_seqs PRIORITY=4)" ] || fail "max_num_seqs takes a restart"
    wait_until 30 "active after the reload" is_active foretoken-coordinator
    now
    edit_conf 's/^max_queue.*/max_queue = many/'
    inside systemctl reload foretoken-coordinator 2>/dev/null && fail "reload of a wrong file"
    wait_until 30 "the log of the failure" says foretoken-coordinator \
        "foretoken.conf:[0-9]*: max_queue is 'many'"
    says foretoken-coordinator reload-failed && fail "a wrong file reaches the process"
    inside sh -c "kill -HUP $pid"
    wait_until 30 "the log of the process" says foretoken-coordinator \
        "reload-failed.*foretoken.conf:[0-9]*: max_queue is 'many'"
    [ "$(pid_of foretoken-coordinator)" = "$pid" ] || fail "a reload is no restart"
    generate >/dev/null || fail "it serves after a reload that failed"
    edit_conf '/^max_queue/d; /^max_num_seqs/d'
    inside systemctl reload foretoken-coordinator foretoken-target foretoken-draft ||
        fail "systemctl reload"
    wait_until 30 "all active after the reload" is_serving
    ok "SIGHUP: what is reloadable is taken, the rest named, an error changes nothing"
}

# Kills UNIT with SIGKILL; the others keep their processes, and everything serves again.
kill_alone() { # UNIT
    local unit=$1 other before=
    for other in $services; do
        before="$before $other=$(pid_of "$other")"
    done
    local pid
    pid=$(pid_of "$unit")
    inside systemctl kill --kill-who=main -s KILL "$unit" || fail "kill $unit"
    wait_until 60 "$unit is started again" is_another_pid "$unit" "$pid"
    wait_until 60 "everything serves after $unit was killed" is_serving
    for other in $services; do
        [ "$other" = "$unit" ] || case $before in
        *" $other=$(pid_of "$other")"*) ;;
        *) fail "$other was restarted because $unit was killed" ;;
        esac
    done
    wait_until 60 "the same text after $unit was killed" gives_the_same_text
}

gives_the_same_text() {
    [ "$(generate 2>/dev/null)" = "$first_text" ]
}

workers_are_killed_alone() {
    kill_alone foretoken-draft
    ok "draft worker killed: it alone restarts, same text"
    kill_alone foretoken-target
    ok "target worker killed: it alone restarts, same text"
}

coordinator_is_killed_alone() {
    kill_alone foretoken-coordinator
    ok "coordinator killed: it alone restarts, same text"
}

# With a watchdog of 5 s, for the length of the step.
trip_watchdog() { # UNIT
    local unit=$1 pid
    inside mkdir -p "/run/systemd/system/$unit.service.d"
    inside sh -c "printf '[Service]\nWatchdogSec=5\n' >/run/systemd/system/$unit.service.d/t.conf"
    inside systemctl daemon-reload
    inside systemctl restart "$unit" || fail "restart $unit"
    wait_until 60 "everything serves" is_serving
    pid=$(pid_of "$unit")
    sleep 6
    [ "$(pid_of "$unit")" = "$pid" ] || fail "$unit feeds its watchdog while it is idle"
    now
    inside kill -STOP "$pid" 2>/dev/null || inside sh -c "kill -STOP $pid"
    wait_until 60 "$unit is ended by the watchdog" is_another_pid "$unit" "$pid"
    inside journalctl -q --no-pager -u "$unit" --since "$since" | grep -qi watchdog ||
        fail "the journal says that the watchdog ended $unit"
    inside rm -r "/run/systemd/system/$unit.service.d"
    inside systemctl daemon-reload
    wait_until 60 "everything serves after the watchdog" is_serving
    wait_until 60 "the same text" gives_the_same_text
}

watchdog_ends_a_coordinator_that_hangs() {
    trip_watchdog foretoken-coordinator
    ok "watchdog: a stopped coordinator is ended and started again"
}

watchdog_ends_a_worker_that_hangs() {
    trip_watchdog foretoken-target
    ok "watchdog: a stopped target worker is ended and started again"
}

# A stream in the background: its text in $work/stream, its exit status in $stream_status.
begin_stream() {
    rm -f "$work/stream"
    generate_long >"$work/stream" 2>"$work/stream.err" &
    stream_pid=$!
    wait_until 30 "the stream begins" test -s "$work/stream"
}

generate_long() {
    inside foretokenctl generate --prompt "Once upon a time" --max-tokens 900 --temperature 0 \
        --ignore-eos --timeout 120
}

end_stream() {
    wait "$stream_pid"
    stream_status=$?
}

# The target is stopped under the stream, which is thereby surely in the middle.
halt_stream() {
    begin_stream
    inside sh -c "kill -STOP $(pid_of foretoken-target)"
    kill -0 "$stream_pid" 2>/dev/null || fail "the stream ended before it could be interrupted"
    sleep 0.3
    [ "$(wc -c <"$work/stream")" -lt ${#long_text} ] || fail "the stream is over already"
}

whole_stream() { # WHAT
    end_stream
    [ "$stream_status" -eq 0 ] || fail "$1 cut the stream: $(cat "$work/stream.err")"
    [ "$(cat "$work/stream")" = "$long_text" ] || fail "$1 changed the text of the stream"
}

stream_survives_a_restart_of_the_target() {
    long_text=$(generate_long) || fail "a long text"
    [ ${#long_text} -gt 1500 ] || fail "a long text, got ${#long_text} bytes"
    halt_stream
    inside systemctl kill --kill-who=main -s KILL foretoken-target || fail "kill of the target"
    whole_stream "killing the target"
    wait_until 60 "everything serves again" is_serving
    halt_stream
    inside systemctl restart foretoken-target || fail "restart of the target"
    whole_stream "restarting the target"
    wait_until 60 "everything serves again" is_serving
    ok "the target is killed, and restarted, under a stream: same text, no token twice"
}

drain_finishes_what_runs() {
    local pid
    edit_conf 's/^num_speculative_tokens.*/&\nshutdown_timeout_ms = 60000/'
    inside systemctl reload foretoken-coordinator || fail "reload of shutdown_timeout_ms"
    now
    pid=$(pid_of foretoken-coordinator)
    halt_stream
    inside sh -c "kill -TERM $pid"
    wait_until 30 "the drain" says foretoken-coordinator "stopping signal 15 running 1"
    inside foretokenctl generate --prompt x --max-tokens 1 --timeout 2 >/dev/null 2>&1 &&
        fail "a coordinator that drains takes no new request"
    inside sh -c "kill -CONT $(pid_of foretoken-target)"
    whole_stream "SIGTERM"
    wait_until 60 "a new coordinator" is_another_pid foretoken-coordinator "$pid"
    wait_until 60 "everything serves after the drain" is_serving
    halt_stream
    inside systemctl stop --no-block foretoken.target || fail "systemctl stop foretoken.target"
    wait_until 30 "the coordinator stops" has_status foretoken-coordinator draining
    is_active foretoken-target || fail "the target stops before the coordinator has drained"
    inside sh -c "kill -CONT $(pid_of foretoken-target)"
    whole_stream "systemctl stop foretoken.target"
    wait_until 60 "all stop" all_stopped
    edit_conf '/^shutdown_timeout_ms/d'
    inside systemctl start foretoken.target foretoken-coordinator || fail "start again"
    wait_until 60 "everything serves again" is_serving
    ok "drain: SIGTERM and systemctl stop let a stream end, and take no new one"
}

all_stopped() {
    local unit
    for unit in $services; do
        [ "$(property "$unit" ActiveState)" = inactive ] || return 1
    done
}

wrong_configuration_is_not_retried() {
    edit_conf 's|^model = .*demo-target|model = /nonexistent|'
    now
    inside systemctl restart foretoken-target >/dev/null 2>&1 && fail "start with a wrong model"
    sleep 3
    [ "$(property foretoken-target Result) $(property foretoken-target ExecMainStatus)" = \
        "exit-code 78" ] || fail "exit status 78, got $(property foretoken-target ExecMainStatus)"
    [ "$(property foretoken-target NRestarts)" -eq 0 ] || fail "78 is not retried"
    edit_conf 's|^model = /nonexistent|model = /usr/share/foretoken/models/demo-target|'
    inside systemctl restart foretoken-target || fail "start with the right model"
    wait_until 60 "everything serves" is_serving
    wait_until 60 "the same text" gives_the_same_text
    ok "a model that is not there: status 78, no restarts; put right, it serves"
}

reboot_brings_it_back() {
    power_off
    boot
    wait_until 60 "everything serves after a reboot" is_serving
    wait_until 60 "the same text after a reboot" gives_the_same_text
    ok "reboot: everything serves by itself"
}

upgrade_restarts_it() {
    local pid
    pid=$(pid_of foretoken-coordinator)
    edit_conf '$a # kept'
    inside dpkg -i --force-confdef --force-confold /root/foretoken.deb >"$work/dpkg.log" 2>&1 ||
        fail "dpkg -i over itself: $(cat "$work/dpkg.log")"
    wait_until 60 "a restart by the upgrade" is_another_pid foretoken-coordinator "$pid"
    wait_until 60 "everything serves after the upgrade" is_serving
    inside grep -q '# kept' /etc/foretoken/foretoken.conf || fail "the administrator's file is kept"
    ok "upgrade: restarted, the edited foretoken.conf kept"
}

removal_and_purge_leave_nothing() {
    inside dpkg -r foretoken >"$work/dpkg.log" 2>&1 || fail "dpkg -r: $(cat "$work/dpkg.log")"
    [ -z "$(inside pgrep -u foretoken 2>/dev/null)" ] || fail "processes are left"
    [ -f "$machine/etc/foretoken/foretoken.conf" ] || fail "a removal keeps the configuration"
    [ ! -e "$machine/usr/bin/foretokenctl" ] || fail "programs are left"
    [ -z "$(inside systemctl --failed --no-legend)" ] || fail "a failed unit is left"
    inside dpkg -P foretoken >"$work/dpkg.log" 2>&1 || fail "dpkg -P: $(cat "$work/dpkg.log")"
    grep -qi warning "$work/dpkg.log" && fail "dpkg -P warns: $(cat "$work/dpkg.log")"
    inside rm -f /root/foretoken.deb /root/wrong.conf
    find "$machine" -xdev -path "$machine/run" -prune -o -path "$machine/proc" -prune -o -print |
        grep -vE '/var/(log|lib/(dpkg|systemd|apt)|cache)/|/tmp/' | sort >"$work/after"
    comm -13 "$work/before" "$work/after" | grep -i foretoken >"$work/left"
    find "$machine/var" "$machine/etc" "$machine/usr" -iname '*foretoken*' >>"$work/left"
    [ -s "$work/left" ] && fail "left behind: $(cat "$work/left")"
    inside getent passwd foretoken >/dev/null && fail "the user is left"
    [ -e "$machine/run/foretoken" ] && fail "/run/foretoken is left"
    [ "$(inside systemctl is-system-running)" = running ] || fail "the system is degraded"
    ok "removal and purge: no process, file, unit, link or user is left"
}

# As docs/OPERATIONS.md says, word for word.
tarball_serves_from_opt() {
    local units=/opt/foretoken/lib/systemd/system
    [ -f "$tarball" ] || fail "no tarball beside the package"
    mkdir -p "$machine/opt/foretoken"
    tar -xzf "$tarball" -C "$machine/opt/foretoken" --strip-components=1 || fail "tar"
    inside systemd-sysusers /opt/foretoken/lib/sysusers.d/foretoken.conf || fail "sysusers"
    inside sh -c "systemctl enable --now $units/foretoken*.service $units/foretoken.target" \
        >"$work/enable.log" 2>&1 || fail "systemctl enable: $(cat "$work/enable.log")"
    wait_until 60 "the tarball's units serve" is_serving
    case $(inside readlink "/proc/$(pid_of foretoken-target)/exe") in
    /opt/foretoken/bin/*) ;;
    *) fail "another program than the tarball's runs" ;;
    esac
    [ "$(inside /opt/foretoken/bin/foretokenctl generate --prompt "Once upon a time" \
        --max-tokens 24 --temperature 0)" = "$first_text" ] || fail "the same text"
    inside /opt/foretoken/bin/foretokenctl config check >"$work/check" || fail "config check"
    grep -q '^/opt/foretoken/etc/foretoken/foretoken.conf' "$work/check" || fail "its own file"
    ok "the tarball: unpacked in /opt/foretoken, enabled, serves"
}
