# Makes the C twin of a .proto: same bytes on the wire, other C types.
# - string becomes bytes: protobuf-c's strings end at the first NUL, user text may hold one.
# - `optional` becomes a oneof of one field: protoc-c refuses proto3 optional.
# - map<K, V> becomes a repeated entry message, which is what a map is on the wire.
# - enum value and message names stay, and so do field numbers.
# A declaration must stand on one line, and in no /* */ comment, as those of proto/ do.
{
  line = $0
  if (line ~ /^[ ]*\/\//) { print line; next }
  comment = ""
  if ((at = index(line, "//")) > 0) { comment = substr(line, at); line = substr(line, 1, at - 1) }
  gsub(/(^|[ (])string /, "&\001", line); gsub(/string \001/, "bytes ", line)
  if (match(line, /map<[a-z0-9]+, *[a-z0-9]+>/)) {
    spec = substr(line, RSTART + 4, RLENGTH - 5); split(spec, kv, /, */)
    rest = substr(line, RSTART + RLENGTH)
    name = rest; sub(/^ */, "", name); sub(/ .*/, "", name)
    entry = name "_entry"
    print "  message " entry " { " kv[1] " key = 1; " kv[2] " value = 2; }"
    line = "  repeated " entry rest
  }
  if (line ~ /^ *optional /) {
    sub(/optional /, "", line)
    split(line, f, /[ ]+/); name = line; sub(/^ *[a-z0-9]+ +/, "", name); sub(/ .*/, "", name)
    sub(/ *$/, "", line)
    line = "  oneof opt_" name " {" line " }"
    if (comment != "") comment = "  " comment
  }
  print line comment
}
