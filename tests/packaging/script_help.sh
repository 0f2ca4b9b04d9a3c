#!/bin/sh
# --help of the scripts that install, build and run: called by a relative name from another folder
# it prints the usage, ends with 0 and starts nothing.   usage: script_help.sh
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# What these scripts would start leaves a mark instead.
mkdir "$work/bin" "$work/else"
for tool in apt-get cmake cpack ctest dpkg-shlibdeps sudo; do
    printf '#!/bin/sh\necho "$0 $*" >>"%s/started"\nexit 1\n' "$work" >"$work/bin/$tool"
    chmod +x "$work/bin/$tool"
done
cd "$work/else" || exit 1
ln -s "$root" ../tree # for names that are right from here alone

for script in deploy/quickstart.sh deploy/package.sh deploy/install-deps.sh deploy/local.sh \
    tests/run.sh tests/gpu/run.sh tests/soak.sh bench/throughput.sh; do
    rm -f "$work/started"
    PATH=$work/bin:$PATH "../tree/$script" --help >"$work/out" 2>"$work/err"
    status=$?
    if [ "$status" -eq 0 ] && grep -q "$script" "$work/out" && [ ! -s "$work/err" ] &&
        [ ! -e "$work/started" ]; then
        echo "ok   $script --help"
        continue
    fi
    echo "FAIL $script --help (status $status)"
    cat "$work/out" "$work/err"
    [ ! -e "$work/started" ] || cat "$work/started"
    failures=$((failures + 1))
done
[ "$failures" -eq 0 ]
