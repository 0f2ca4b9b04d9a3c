#!/bin/sh
# Checks what a script can check of the rules of this repository: which layer includes which, where
# library headers stand, what a header looks like, sizes. Prints "file:line: rule: detail" for each
# finding and exits 1 when there is one. CC is the compiler that tries headers alone.
# usage: tests/lint.sh [ROOT]
set -eu
LC_ALL=C
export LC_ALL
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/..}"

found=$(mktemp)
list=$(mktemp)
trap 'rm -f "$found" "$list"' EXIT

# Files of ours: all but build trees, models and what begins with a dot.
ours() {
  find . -mindepth 1 \( -name '.?*' -o -name build -o -name 'build-*' \
    -o -path ./models -o -name __pycache__ \) -prune -o -type f "$@" -print | sed 's|^\./||' | sort
}

ours \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.def' -o -name '*.proto' \
  -o -name '*.awk' -o -name '*.sh' \) > "$list"
xargs awk -f "$here/lint.awk" < "$list" >> "$found"

# Every header compiles alone, as a program's first include.
grep '\.h$' "$list" | xargs -P 2 -n 8 sh -c '
  for header do
    case $header in # device code and what stands on it: nvcc compiles it, or a C++ compiler
      common/gpu/kernels/*|tests/gpu/sim/*|tests/gpu/whole_model.h) continue ;;
    esac
    text=$("${CC:-cc}" -std=c17 -D_GNU_SOURCE -w -I. -Itests -fsyntax-only -x c "$header" 2>&1 |
      grep "error:" | head -n 1)
    [ -z "$text" ] || printf "%s:1: header-alone: %s\n" "$header" "$text"
  done' sh >> "$found"

# Work is done or it is not: no notes to come back later.
words='TO''DO|FIX''ME'
ours ! -name '*.json' ! -name '*.bin' ! -name '*.safetensors' |
  xargs grep -nIwE "$words" /dev/null |
  sed 's/^\([^:]*:[0-9]*\):/\1: unfinished:/' >> "$found" || true

# Every folder of code says what it is for.
roles='coordinator draft_worker target_worker foretokenctl'
for folder in common/* $roles bench deploy docs proto tests; do
  if [ -d "$folder" ] && [ ! -f "$folder/README.md" ] && [ -n "$(ls -A "$folder")" ]; then
    echo "$folder:1: folder-readme: no README.md" >> "$found"
  fi
done

sort -t: -k1,1 -k2,2n "$found"
[ ! -s "$found" ]
