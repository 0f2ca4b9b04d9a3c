#!/bin/sh
# The man pages have no mistake that groff warns of, and every parameter of the programs is in them.
# usage: tests/packaging/man_lint.sh DIR_OF_PAGES
set -u
dir=$1
command -v groff >/dev/null || { echo "skipped: groff is not installed"; exit 77; }
failures=0
bad() {
    echo "FAIL $*"
    failures=$((failures + 1))
}
n=0
for page in "$dir"/*.[158]; do
    n=$((n + 1))
    said=$(groff -man -Tutf8 -ww -z "$page" 2>&1)
    [ -z "$said" ] || bad "$page: $said"
    grep -n '^@[A-Z]*@$\|@VERSION@' "$page" && bad "$page: a mark that nothing filled"
    gzip -dc "$page.gz" | cmp -s - "$page" || bad "$page.gz is another page"
done
[ "$n" -eq 5 ] || bad "$n pages, not 5"

# What foretokenctl asks of the environment is in its page.
for name in $(grep -o 'FORETOKEN_[A-Z_]*' "$(dirname "$0")/../../foretokenctl/env.c" | sort -u); do
    sed -n '/^.SH ENVIRONMENT/,/^.SH SEE/p' "$dir/foretokenctl.1" | grep -q "$name" ||
        bad "$name in foretokenctl(1)"
done

# Every key of --help is in its program's page, and those that a file may hold in the file's.
for role in coordinator target draft; do
    keys=$("$dir/../bin/foretoken-$role" --help | sed -n 's/^  --\([a-z_]*\) .*/\1/p' |
        grep -v '^\(config\|version\|help\|check\|set\)$')
    [ -n "$keys" ] || bad "no keys of $role"
    "$dir/../bin/foretoken-$role" --help | grep -q '^  --set KEY=VALUE ' &&
        grep -q '^.fB.-.-set.fR' "$dir/foretoken-$role.8" || bad "--set of $role"
    for key in $keys; do
        grep -q "^.fB.-.-$key.fR" "$dir/foretoken-$role.8" || bad "--$key in foretoken-$role(8)"
        case $key in
        ready_fd | die_with_parent)
            grep -q "^.fB$key.fR" "$dir/foretoken.conf.5" && bad "$key is in foretoken.conf(5)" ;;
        *) sed -n "/^.SH SECTION .$role/,/^.SH/p; /^.SH SECTION .$role/,\$p" \
            "$dir/foretoken.conf.5" | grep -q "^.fB$key.fR" || bad "$key in foretoken.conf(5)" ;;
        esac
    done
done
for command in generate config stats; do
    grep -q "^.SS \"$command " "$dir/foretokenctl.1" || bad "$command in foretokenctl(1)"
done
[ "$failures" -eq 0 ]
