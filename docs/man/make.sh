#!/bin/sh
# The man pages: what is written by hand, with the tables that the programs themselves have.
# usage: docs/man/make.sh BIN_DIR OUT_DIR VERSION
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bin=$1 out=$2 version=$3
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# fill TEMPLATE OUT MARK=FILE...: a line that is @MARK@ becomes the file.
fill() {
    template=$1 target=$2
    shift 2
    awk -v version="$version" '
        BEGIN {
            for (i = 2; i < ARGC; i++) {
                split(ARGV[i], pair, "=")
                file["@" pair[1] "@"] = pair[2]
                ARGV[i] = ""
            }
        }
        $0 in file { while ((getline line < file[$0]) > 0) print line; next }
        { gsub(/@VERSION@/, version); print }
    ' "$template" "$@" >"$target.new"
    mv "$target.new" "$target"
}

# Lines of a --help, "  name  what it does" or the name alone and then the rest, as paragraphs.
paragraphs() {
    awk '
        function safe(text) {
            gsub(/\\/, "\\e", text)
            gsub(/-/, "\\-", text)
            return text ~ /^[.\047]/ ? "\\&" text : text
        }
        /^ +[^ ]/ {
            line = $0
            sub(/^ +/, "", line)
            if ($0 ~ /^   /) { print safe(line); next }
            at = match(line, /  +/)
            printf ".TP\n\\fB%s\\fR\n", safe(at ? substr(line, 1, at - 1) : line)
            if (at) print safe(substr(line, at + RLENGTH))
        }'
}

for role in coordinator target draft; do
    "$bin/foretoken-$role" --help=options.roff >"$work/$role.options"
    "$bin/foretoken-$role" --help=keys.roff >"$work/$role.keys"
    fill "$here/foretoken-$role.8.in" "$out/foretoken-$role.8" \
        "OPTIONS=$work/$role.options" "COMMON=$here/common.roff"
done
fill "$here/foretoken.conf.5.in" "$out/foretoken.conf.5" "COORDINATOR=$work/coordinator.keys" \
    "TARGET=$work/target.keys" "DRAFT=$work/draft.keys"

"$bin/foretokenctl" help >"$work/help"
sed -n '/^flags of every command:/,/^$/p' "$work/help" | paragraphs >"$work/global"
sed -n '/^exit status:/,$p' "$work/help" | paragraphs >"$work/exit"
for command in $(sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' "$work/help"); do
    [ "$command" = help ] && continue
    "$bin/foretokenctl" help "$command" >"$work/command"
    usage=$(sed -n '1s/^usage: foretokenctl //p' "$work/command" | sed 's/-/\\-/g')
    printf '.SS "%s"\n' "$usage"
    sed -n 3p "$work/command" | sed "s/-/\\\\-/g; s/^[.']/\\\\\&&/"
    sed -n '/^flags:/,/^$/p' "$work/command" | paragraphs
done >"$work/commands"
fill "$here/foretokenctl.1.in" "$out/foretokenctl.1" "COMMANDS=$work/commands" \
    "GLOBAL=$work/global" "EXIT=$work/exit"

for page in "$out"/*.[158]; do
    gzip -9nc "$page" >"$page.gz"
done
