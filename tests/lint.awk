# Rules that need the text of a file: sizes, names, includes, comments. See lint.sh.
# Paths are relative to the root of the repository. One line per finding: file:line: rule: detail.

function report(line, rule, detail) { print FILENAME ":" line ": " rule ": " detail }

# "common/wire" of common/wire/pb.c, "coordinator" of coordinator/main.c
function layer_of(path,   part) {
  split(path, part, "/")
  return part[1] == "common" ? part[1] "/" part[2] : part[1]
}

function columns(line) { gsub(/[\200-\277]/, "", line); return length(line) }

BEGIN {
  # What each layer may include, itself aside. Roles may include every layer, but never each other.
  may["common/base"] = ""
  may["common/wire"] = may["common/rpc"] = may["common/text"] = may["common/gpu"] = "base"
  may["common/ipc"] = may["common/kv"] = may["common/spec"] = "base gpu"
  may["common/model"] = "base gpu kv"
  may["common/worker"] = "base gpu ipc kv model wire rpc text"
  may["foretokenctl"] = "base wire rpc spec"
  all = "base gpu ipc kv model rpc spec text wire worker"
  may["coordinator"] = may["draft_worker"] = may["target_worker"] = all

  # Headers of a library, and the only layers that may include them.
  n_libraries = 5
  library[1] = "^(protobuf-c/|google/protobuf-c/|.*[.]pb-c[.]h)"
  users[1] = "common/wire"
  library[2] = "^(grpc/|grpc[+][+]/|grpcpp/)"
  users[2] = "common/rpc"
  library[3] = "^(cuda|cublas|nccl|nvrtc|nvml|cooperative_groups)"
  users[3] = "common/gpu common/ipc"
  library[4] = "^(ini[.]h|systemd/)"
  users[4] = "common/base"
  library[5] = "^microhttpd[.]h"
  users[5] = "common/rpc"

  limit["c"] = 700; limit["cu"] = 700; limit["h"] = 250
}

FNR == 1 {
  end_file()
  file = FILENAME
  lines = 0
  kind = FILENAME; sub(/.*[.]/, "", kind)
  layer = layer_of(FILENAME)
  is_test = FILENAME ~ /^tests\//
  base = FILENAME; sub(/.*\//, "", base); sub(/[.][^.]*$/, "", base)
  in_top = open_brace = in_comment = head_done = has_guard = has_extern = 0
  head = signature = ""
  delete seen_head
}

{ lines = FNR }

length($0) > 100 && columns($0) > 100 {
  report(FNR, "line-length", columns($0) " columns, at most 100")
}
/[ \t]$/ { report(FNR, "trailing-blank", "blanks at the end of a line") }
/\t/ && kind != "awk" { report(FNR, "tab", "a tab: indent with spaces") }

kind == "c" || kind == "h" || kind == "cu" || kind == "def" {
  if (match($0, /^[ ]*#[ ]*include[ ]+["<][^">]+[">]/)) check_include()
  if (!is_test && kind != "def" && /(^|[^A-Za-z0-9_])(secure_)?getenv[ ]*\(/) check_getenv()
}
kind == "h" { check_header() }
kind == "c" || kind == "cu" { check_function() }

function check_include(   path, quoted, target, i) {
  quoted = $0 ~ /include[ ]+"/
  path = $0; sub(/^[^"<]*["<]/, "", path); sub(/[">].*/, "", path)
  if (!is_test)
    for (i = 1; i <= n_libraries; i++) {
      if (path !~ library[i]) continue
      if (index(" " users[i] " ", " " layer " ") == 0)
        report(FNR, "library-header", path " belongs to " users[i])
      else if (i == 1 && kind != "c")
        report(FNR, "library-header", path " in a header: protobuf-c stays in .c files")
      return
    }
  if (!quoted || is_test || !(layer in may)) return
  target = layer_of(path)
  if (target == layer) return
  if (!(target in may))
    report(FNR, "include-path", path " does not start at a layer or a role")
  else if (target !~ /^common\//)
    report(FNR, "include-direction", layer " includes " target ": a role is included by none")
  else if (index(" " may[layer] " ", " " substr(target, 8) " ") == 0)
    report(FNR, "include-direction", layer " includes " target)
}

# One file per role, none in a layer: configuration comes in by one door.
function check_getenv() {
  if (layer ~ /^common\//)
    report(FNR, "getenv", "in a layer: the role hands configuration down")
  else if ((layer in getenv_file) && getenv_file[layer] != FILENAME)
    report(FNR, "getenv", "also in " getenv_file[layer] ": one file per role reads the environment")
  getenv_file[layer] = FILENAME
}

# The opening comment, the guard and extern "C". Tests need no more than a name and a guard.
function check_header() {
  if (FNR == 1 && $0 !~ ("^/[*] " base "( [(][a-z0-9_ ]+[)])?: [^ ]"))
    report(1, "header-comment", "must open with '/* " base ": ...'")
  if (!head_done) {
    if (match($0, /(Owns|Runs in|Never):/)) seen_head[substr($0, RSTART, RLENGTH - 1)] = 1
    if (index($0, "*/")) head_done = 1
  }
  if ($0 ~ /^#ifndef [A-Z0-9_]+_H$/) guard = $2
  if ($0 ~ /^#define [A-Z0-9_]+_H$/ && $2 == guard) has_guard = 1
  if ($0 ~ /^extern "C" [{]/) has_extern = 1
}

# A top-level construct starts in column 0 and ends with } in column 0 or with ; on its line. It is
# a function when its text up to the { has a ( and neither = nor struct-like braces.
function check_function(   is_function) {
  if (in_comment) { if (index($0, "*/")) in_comment = 0; return }
  if (!in_top && $0 ~ /^\/[*]/) { if (!index($0, "*/")) in_comment = 1; return }
  if (!open_brace && ($0 == "" || $0 ~ /^[A-Z0-9_]+[(].*[)]$/)) in_top = 0 # a macro call alone
  else if (!in_top && $0 ~ /^[A-Za-z_]/) { in_top = 1; top_line = FNR; signature = "" }
  if (!in_top) return
  if (!open_brace) {
    signature = signature " " $0
    if (index($0, "{")) { open_brace = 1; sub(/[{].*/, "", signature) }
    else if ($0 ~ /;[ ]*(\/[*].*)?$/) { in_top = 0; return }
  } else if ($0 ~ /^[ ]*#[ ]*if/ && signature ~ /\(/ && signature !~ /=/)
    report(FNR, "if-in-function", "preprocessor condition inside a function: CMake picks a file")
  if ($0 !~ /^}/ && !(open_brace && FNR == top_line && $0 ~ /}[;]?[ ]*$/)) return
  is_function = signature ~ /\(/ && signature !~ /=/ && signature !~ /^ (typedef|enum) /
  if (is_function) {
    if (FNR - top_line + 1 > (kind == "cu" ? 120 : 70))
      report(top_line, "function-length", (FNR - top_line + 1) " lines, at most " \
             (kind == "cu" ? 120 : 70))
    check_parameters()
  }
  in_top = open_brace = 0
}

function check_parameters(   s, depth, i, c, n) {
  if (signature ~ /^ static enum MHD_Result /) return # libmicrohttpd says what its callback takes
  s = signature; sub(/[^(]*\(/, "", s); n = 1; depth = 0
  for (i = 1; i <= length(s); i++) {
    c = substr(s, i, 1)
    if (c == "(") depth++
    else if (c == ")" && depth-- == 0) break
    else if (c == "," && depth == 0) n++
  }
  if (n > 6) report(top_line, "parameters", n " parameters, at most 6: pass a struct")
}

function end_file(   name, i) {
  if (file == "") return
  if ((kind in limit) && lines > limit[kind])
    print file ":" lines ": file-size: " lines " lines, at most " limit[kind]
  if (kind == "h") {
    split("Owns,Runs in,Never", name, ",")
    for (i = 1; i <= 3 && !is_test; i++)
      if (!(name[i] in seen_head))
        print file ":1: header-comment: the opening comment has no '" name[i] ":'"
    if (!has_guard) print file ":1: header-guard: no #ifndef and #define of one NAME_H"
    if (!has_extern && !is_test) print file ":1: header-extern: no extern \"C\""
  }
  if (base ~ /^(util|utils|misc|helper|helpers|common)$/)
    print file ":1: file-name: '" base "' says nothing: name what is in it"
}

END { end_file() }
