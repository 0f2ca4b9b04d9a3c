#!/bin/sh
# Every rule of lint.sh finds its offender in a small tree, and a clean tree passes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
cd "$root"
failed=0

good_header() { # name, body
  printf '/* %s: a thing.\n * Owns:    nothing.\n * Runs in: tests.\n * Never:   fails. */\n' "$1"
  printf '#ifndef FT_A_H\n#define FT_A_H\n#ifdef __cplusplus\nextern "C" {\n#endif\n'
  printf '%s\n#ifdef __cplusplus\n}\n#endif\n#endif\n' "$2"
}

lines() { # n, text
  awk -v n="$1" -v text="$2" 'BEGIN { for (i = 0; i < n; i++) print text }'
}

# A tree with one file as given on standard input, and what the check says of it.
findings() { # path
  rm -rf common coordinator draft_worker
  mkdir -p common/base common/wire common/rpc coordinator "$(dirname "$1")"
  for folder in common/base common/wire common/rpc coordinator "$(dirname "$1")"; do
    echo "# it" > "$folder/README.md"
  done
  good_header good 'int ft_good_do(int a);' > common/base/good.h
  cat > "$1"
  "$here/lint.sh" "$root" || true
}

expect() { # rule and where, path; the file on standard input
  said=$(findings "$2")
  case $said in
    *"$1"*) ;;
    *) echo "expected '$1', got: $said"; failed=1 ;;
  esac
}

expect_clean() { # path
  said=$(findings "$1")
  [ -z "$said" ] || { echo "expected nothing of $1, got: $said"; failed=1; }
}

printf '#include "common/base/good.h"\n\nint ft_good_do(int a) {\n    return a;\n}\n' |
  expect_clean common/wire/good.c
printf '#include <protobuf-c/protobuf-c.h>\n#include "foretoken/v1/x.pb-c.h"\n' |
  expect_clean common/wire/pb.c
good_header fine 'int ft_fine_do(int a);' | expect_clean common/wire/fine.h
lines 700 '/* c */' | expect_clean common/base/long.c
{ echo 'int f(void) {'; lines 68 '    ;'; echo '}'; } | expect_clean common/base/f.c
{ echo 'static const int t[] = {'; lines 90 '    1,'; echo '};'; } |
  expect_clean common/base/table.c

echo '#include "common/rpc/rpc.h"' | expect 'common/wire/a.c:1: include-direction' common/wire/a.c
echo '#include "coordinator/x.h"' | expect 'common/wire/a.c:1: include-direction' common/wire/a.c
echo '#include "coordinator/x.h"' | expect 'include-direction' draft_worker/a.c
echo '#include "common/gpu/device.h"' | expect 'include-direction' common/rpc/a.c
echo '#include "good.h"' | expect 'common/base/a.c:1: include-path' common/base/a.c
echo '#include <protobuf-c/protobuf-c.h>' | expect 'a.c:1: library-header' coordinator/a.c
good_header a '#include <protobuf-c/protobuf-c.h>' | expect 'library-header' common/wire/a.h
echo '#include <grpc/grpc.h>' | expect 'library-header' common/wire/a.c
echo '#include <cuda_runtime.h>' | expect 'library-header' common/rpc/a.c
echo '#include <nccl.h>' | expect 'library-header' coordinator/a.c
good_header a 'size_t n;' | expect 'common/base/a.h:1: header-alone' common/base/a.h
good_header b 'int n;' | expect 'common/base/a.h:1: header-comment' common/base/a.h
good_header a 'int n;' | grep -v 'Never' | expect "has no 'Never:'" common/base/a.h
good_header a 'int n;' | grep -v '#define' | expect 'header-guard' common/base/a.h
good_header a 'int n;' | grep -v 'extern' | expect 'header-extern' common/base/a.h
lines 701 '/* c */' | expect 'common/base/a.c:701: file-size' common/base/a.c
good_header a "$(lines 250 'int ft_a_do(void);')" | expect 'file-size' common/base/a.h
{ echo; echo 'int f(void) {'; lines 69 '    ;'; echo '}'; } |
  expect 'common/base/a.c:2: function-length: 71' common/base/a.c
{ echo 'ROW(a, b)'; echo 'int f(int a, int b) {'; lines 69 '    ;'; echo '}'; } |
  expect 'common/base/a.c:2: function-length: 71' common/base/a.c
{ echo 'static int'; echo 'f(int a,'; echo '  int b) {'; lines 67 '    ;'; echo '}'; } |
  expect 'common/base/a.c:1: function-length: 71' common/base/a.c
printf 'int f(int a, int b, int c, int d, int e, int g, int h) {\n    return a;\n}\n' |
  expect 'common/base/a.c:1: parameters: 7' common/base/a.c
printf 'int f(void) {\n#if A\n    return 1;\n#endif\n    return 0;\n}\n' |
  expect 'common/base/a.c:2: if-in-function' common/base/a.c
lines 1 "/* $(lines 1 x | awk '{ while (length($0) < 95) $0 = $0 "x"; print }') */" |
  expect 'common/base/a.c:1: line-length: 101' common/base/a.c
printf 'int a; \n' | expect 'trailing-blank' common/base/a.c
printf 'int\ta;\n' | expect 'a.c:1: tab' common/base/a.c
printf 'int a = getenv("A");\n' | expect 'common/base/a.c:1: getenv' common/base/a.c
printf '/* FIX%s: later */\n' ME | expect 'common/base/a.c:1: unfinished' common/base/a.c
echo 'int a;' | expect 'common/base/util.c:1: file-name' common/base/util.c

# What takes more than one file: two readers of the environment in one role, a folder that says
# nothing.
printf 'int b = getenv("A");\n' | expect_clean coordinator/a.c
cp coordinator/a.c coordinator/b.c
said=$("$here/lint.sh" "$root" || true)
case $said in
  *'coordinator/b.c:1: getenv: also in coordinator/a.c'*) ;;
  *) echo "expected getenv of two files, got: $said"; failed=1 ;;
esac
rm -f coordinator/b.c coordinator/README.md
said=$("$here/lint.sh" "$root" || true)
case $said in
  *'coordinator:1: folder-readme'*) ;;
  *) echo "expected folder-readme, got: $said"; failed=1 ;;
esac
[ "$failed" = 0 ] && echo "lint: every rule works"
exit "$failed"
