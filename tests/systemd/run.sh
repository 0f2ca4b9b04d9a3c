#!/bin/bash
# The package in a booted Debian: a minimal root with systemd is booted in a container, the .deb is
# installed in it, and the units are started, killed, watched, drained, rebooted under and removed.
# Each step says what it asserts; the first one that fails ends the run, with the journal.
#
# usage: tests/systemd/run.sh [--deb FILE.deb] [--keep]
#   FORETOKEN_BOOT_CACHE   where the root is kept between runs, default /var/tmp/foretoken-boot
#   FORETOKEN_BOOT_MIRROR  default http://deb.debian.org/debian
# Exits 77 where it cannot run: not root, no debootstrap, no systemd-nspawn.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root_of_repo=$(cd "$here/../.." && pwd)
cache=${FORETOKEN_BOOT_CACHE:-/var/tmp/foretoken-boot}
mirror=${FORETOKEN_BOOT_MIRROR:-http://deb.debian.org/debian}
suite=bookworm
packages=systemd,systemd-sysv,dbus,init-system-helpers
deb= keep=
while [ $# -gt 0 ]; do
    case $1 in
    --deb) deb=$2 && shift ;;
    --keep) keep=1 ;;
    *) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2 && exit 64 ;;
    esac
    shift
done

skip() {
    echo "skipped: $*"
    exit 77
}
[ "$(id -u)" -eq 0 ] || skip "needs root"
for tool in debootstrap systemd-nspawn nsenter; do
    command -v $tool >/dev/null || skip "no $tool (deploy/install-deps.sh --with-boot)"
done

work=$(mktemp -d /var/tmp/foretoken-boot-run.XXXXXX)
machine=$work/root
nspawn_pid=
began=$(date +%s)

say() {
    printf '%4ds %s\n' "$(($(date +%s) - began))" "$*"
}

# ---- the root ----------------------------------------------------------------------------------

make_root() {
    local made=$cache/$suite-$packages
    if [ ! -d "$made" ]; then
        say "debootstrap of $suite into $made, once"
        mkdir -p "$cache"
        rm -rf "$made.new"
        debootstrap --variant=minbase --include="$packages" "$suite" "$made.new" "$mirror" \
            >"$work/debootstrap.log" 2>&1 || {
            tail -n 20 "$work/debootstrap.log"
            rm -rf "$made.new"
            skip "debootstrap failed: no network?"
        }
        rm -rf "$made.new"/var/cache/apt/archives/*.deb
        mv "$made.new" "$made"
    fi
    cp -a --reflink=auto "$made" "$machine"
    : >"$machine/etc/machine-id"
    printf 'nameserver 127.0.0.1\n' >"$machine/etc/resolv.conf"
    echo force-unsafe-io >"$machine/etc/dpkg/dpkg.cfg.d/boot-test" # what is written is thrown away
    # Nothing is online here, and nothing needs to wait for it.
    ln -sf /dev/null "$machine/etc/systemd/system/systemd-networkd-wait-online.service"
}

# ---- the machine -------------------------------------------------------------------------------

# A command inside; its standard input is /dev/null.
inside() {
    nsenter -t "$leader" -a -- /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        LC_ALL=C.UTF-8 "$@" </dev/null
}

# The first process of the container is the child of systemd-nspawn that has its own pid namespace.
find_leader() {
    local child
    for child in $(cat "/proc/$nspawn_pid/task/$nspawn_pid/children" 2>/dev/null); do
        [ "$(readlink "/proc/$child/ns/pid")" != "$(readlink /proc/self/ns/pid)" ] || continue
        leader=$child
        return 0
    done
    return 1
}

wait_until() { # SECONDS WHAT CONDITION...
    local limit=$1 what=$2 until
    shift 2
    until=$(($(date +%s) + limit))
    until "$@"; do
        [ "$(date +%s)" -lt "$until" ] || fail "$what: not within $limit s"
        sleep 0.1
    done
}

is_booted() {
    find_leader || return 1
    case $(inside systemctl is-system-running 2>/dev/null) in
    running) return 0 ;;
    degraded) inside systemctl --failed --no-legend --plain && fail "booted degraded" ;;
    esac
    return 1
}

boot() {
    # No name is registered and no scope is asked for: it runs where no systemd manages this host.
    systemd-nspawn --register=no --keep-unit -q -b -D "$machine" --private-network \
        --console=pipe </dev/null >>"$work/console.log" 2>&1 &
    nspawn_pid=$!
    wait_until 120 "systemd reaches running" is_booted
}

wait_gone() {
    wait "$nspawn_pid" 2>/dev/null
    nspawn_pid=
}

power_off() {
    inside systemctl poweroff >/dev/null 2>&1
    wait_gone
}

cleanup() {
    if [ -n "$nspawn_pid" ]; then
        kill -KILL "$nspawn_pid" 2>/dev/null
        wait "$nspawn_pid" 2>/dev/null
    fi
    [ -n "$keep" ] || rm -rf "$work"
    [ -z "$keep" ] || echo "kept: $work"
}
trap cleanup EXIT

fail() {
    echo "FAIL $*"
    if [ -n "$nspawn_pid" ] && find_leader; then
        inside systemctl status --no-pager -n 0 'foretoken*' 2>&1 |
            grep -E '●|×|Active|Status' | head -n 30
        inside journalctl --no-pager -n 60 -o short-monotonic -u 'foretoken*' 2>&1
    else
        tail -n 40 "$work/console.log" 2>/dev/null
    fi
    exit 1
}

ok() {
    say "ok   $*"
}

# ---- what the steps look at --------------------------------------------------------------------

property() { # UNIT NAME
    inside systemctl show -P "$2" "$1"
}

is_active() {
    [ "$(inside systemctl is-active "$1" 2>/dev/null)" = active ]
}

has_status() { # UNIT TEXT
    case $(property "$1" StatusText) in *"$2"*) return 0 ;; esac
    return 1
}

all_active() {
    local unit
    for unit in $services; do
        is_active "$unit" || return 1
    done
}

is_serving() {
    all_active && has_status foretoken-coordinator "serving on"
}

pid_of() {
    property "$1" MainPID
}

is_another_pid() { # UNIT PID
    is_active "$1" && [ "$(pid_of "$1")" != "$2" ]
}

generate() {
    inside foretokenctl generate --prompt "Once upon a time" --max-tokens 24 --temperature 0 \
        --timeout 60 "$@"
}

# The journal of a unit since it was last looked at.
journal() { # UNIT [OPTIONS...]
    local unit=$1
    shift
    inside journalctl --no-pager -q -o cat -u "$unit" --since "$since" "$@"
}

now() {
    sleep 1.1 # the journal's --since is in seconds
    since=$(inside date '+%Y-%m-%d %H:%M:%S')
}

says() { # UNIT TEXT
    journal "$1" | grep -q -- "$2"
}

services="foretoken-coordinator foretoken-draft foretoken-target"
since=today
. "$here/steps.sh"

# ---- run ---------------------------------------------------------------------------------------

if [ -z "$deb" ]; then
    say "building the package"
    "$root_of_repo/deploy/package.sh" >"$work/package.log" 2>&1 || {
        tail -n 30 "$work/package.log"
        exit 1
    }
    deb=$(tail -n 2 "$work/package.log" | grep '[.]deb$')
fi
tarball=$(echo "${deb%/*}"/foretoken-*.tar.gz)
[ -f "$deb" ] || { echo "no package at '$deb'"; exit 1; }
make_root
say "boot"
boot
ok "a minimal Debian runs"
for step in "${steps[@]}"; do
    "$step"
done
power_off
say "all passed"
