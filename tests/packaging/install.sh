#!/bin/bash
# cmake --install into a prefix, and below DESTDIR: what lands where, what the units say, and that
# systemd finds nothing wrong with them.
# usage: tests/packaging/install.sh BUILD_DIR CMAKE
set -u
build=$1 cmake=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
check() { # WHAT CONDITION...
    local what=$1
    shift
    if "$@"; then
        echo "ok   $what"
    else
        echo "FAIL $what"
        failures=$((failures + 1))
    fi
}
install_to() { # PREFIX
    "$cmake" --install "$build" --prefix "$1" >"$work/log" 2>&1 || cat "$work/log"
}
lacks() {
    ! grep -rqI -- "$1" "$2"
}

prefix=$work/p
install_to "$prefix"
for file in bin/foretoken-coordinator bin/foretoken-draft bin/foretoken-target bin/foretokenctl \
    share/man/man1/foretokenctl.1.gz share/man/man5/foretoken.conf.5.gz \
    share/man/man8/foretoken-target.8.gz share/foretoken/models/demo-target/model.safetensors \
    lib/systemd/system/foretoken.target lib/sysusers.d/foretoken.conf \
    lib/tmpfiles.d/foretoken.conf etc/foretoken/foretoken.conf share/doc/foretoken/copyright; do
    check "$file in the prefix" test -s "$prefix/$file"
done
check "units start the prefix's programs" grep -q \
    "^ExecStart=$prefix/bin/foretoken-target --config $prefix/etc/foretoken/foretoken.conf" \
    "$prefix/lib/systemd/system/foretoken-target.service"
check "no mark is left" lacks '@FT_' "$prefix/lib"
check "its foretokenctl finds its file, which is right" "$prefix/bin/foretokenctl" config check
echo '# mine' >>"$prefix/etc/foretoken/foretoken.conf"
install_to "$prefix"
check "a second installation leaves foretoken.conf alone" \
    grep -q '^# mine' "$prefix/etc/foretoken/foretoken.conf"

export DESTDIR=$work/d
install_to /usr
unset DESTDIR
check "below DESTDIR: programs" test -x "$work/d/usr/bin/foretokenctl"
check "below DESTDIR: /etc, not /usr/etc" test -s "$work/d/etc/foretoken/foretoken.conf"
check "units know nothing of DESTDIR" lacks "$work" "$work/d/usr/lib"
check "nor does the configuration" lacks "$work" "$work/d/etc"
check "units start /usr/bin" \
    grep -q "^ExecStart=/usr/bin/foretoken-draft --config /etc/foretoken/" \
    "$work/d/usr/lib/systemd/system/foretoken-draft.service"

if ! command -v systemd-analyze >/dev/null; then
    echo "not tested: systemd-analyze is not installed"
    [ "$failures" -eq 0 ]
    exit
fi
# The MPS daemon and the pages are not where systemd would look for them.
systemd-analyze verify --man=no "$prefix"/lib/systemd/system/foretoken* 2>&1 |
    grep -v 'nvidia-cuda-mps-control is not executable' >"$work/verify"
check "systemd-analyze verify: $(cat "$work/verify")" test ! -s "$work/verify"
for unit in coordinator draft target mps; do # 2.0 of 10
    systemd-analyze security --offline=yes --no-pager --threshold=20 \
        "$prefix/lib/systemd/system/foretoken-$unit.service" >"$work/security" 2>&1
    status=$?
    check "systemd-analyze security, $unit: $(tail -n 1 "$work/security")" [ "$status" -eq 0 ]
done
[ "$failures" -eq 0 ]
