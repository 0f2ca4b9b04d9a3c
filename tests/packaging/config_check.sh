#!/bin/bash
# foretokenctl config check and show, with the real programs.   usage: config_check.sh BIN_DIR
set -u
bin=$1
here=$(cd "$(dirname "$0")" && pwd)
models=$here/../../models
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
file=$work/f.conf

# The exit status of `config WORDS...` on $file, its output in $work/out.
expect() { # STATUS WHAT WORDS...
    local want=$1 what=$2 got
    shift 2
    "$bin/foretokenctl" config "$@" >"$work/out" 2>&1
    got=$?
    if [ "$got" -eq "$want" ]; then
        echo "ok   $what"
    else
        echo "FAIL $what (status $got)"
        cat "$work/out"
        failures=$((failures + 1))
    fi
}
says() {
    grep -qE -- "$1" "$work/out" && return
    echo "FAIL should say: $1"
    cat "$work/out"
    failures=$((failures + 1))
}
silent() {
    grep -qE -- "$1" "$work/out" || return
    echo "FAIL should not say: $1"
    failures=$((failures + 1))
}
write() { # SED-SCRIPT: what to do to a file that is right
    sed "$1" >"$file" <<CONF
[coordinator]
listen = unix:$work/c.sock
target_endpoint = unix:$work/t.sock
draft_endpoint = unix:$work/d.sock
[target]
model = $models/demo-target
listen = unix:$work/t.sock
[draft]
model = $models/demo-draft
listen = unix:$work/d.sock
CONF
}

write ''
expect 0 "a file that is right" check "$file"
says ': can be used, 0 errors, 0 warnings'
expect 0 "the same as JSON" check "$file" --json
says '"ok":true,"errors":0,"warnings":0,"problems":\[\]'

write '/draft_endpoint/d; /\[draft\]/,$d'
expect 0 "without a draft worker" check "$file"

write 's/^target_endpoint.*/target_endpoint = unix:\/else/'
expect 78 "the coordinator looks for the target elsewhere" check "$file"
says "error: \[coordinator\] target_endpoint is 'unix:/else' \(file $file:3\): must be where the"

write 's/d.sock/t.sock/'
expect 78 "two workers on one socket" check "$file"
says "error: \[draft\] listen is .*: the target listens there|error: \[target\] listen"

write '/^listen = .*[td].sock/d'
expect 78 "what both workers lack is told of both" check "$file"
says 'error: \[target\] listen is not set'
says 'error: \[draft\] listen is not set'

write '/draft_endpoint/d'
expect 0 "a draft worker that nobody asks is a warning" check "$file"
says 'warning: \[draft\] .*draft_endpoint is not set'

write "s|^model = .*demo-draft|model = $work|; s/^listen = .*d.sock/&\nkv_cache_byte = 1Gi/"
expect 78 "an unknown key" check "$file"
says "\[draft\] $file:11: unknown parameter 'kv_cache_byte'; the nearest .* is 'kv_cache_bytes'"
write "s|^model = .*demo-draft|model = $work|"
expect 78 "a model that is not there" check "$file" --json
says "\"section\":\"draft\",\"text\":\"$file:9: model is '$work': cannot read $work/config.json"

write 's/^target_endpoint.*/&\nmax_num_seqs = 0\nlog_level = loud\nqueue = 3/
    s/^\[draft\]/[drafter]/'
expect 78 "each problem has its line" check "$file"
says "$file:4: max_num_seqs is '0': must be 1 to 4096 requests"
says "$file:5: log_level is 'loud': must be one of error\|warn\|info\|debug"
says "$file:6: unknown parameter 'queue'; the nearest known one is 'max_queue'"
says "unknown section 'drafter'; the nearest known one is 'draft'"
[ "$(grep -c "unknown section" "$work/out")" -eq 1 ] || {
    echo "FAIL a problem of the file's form is told once"
    cat "$work/out"
    failures=$((failures + 1))
}

write 's/^\[target\]/[tarket]\n&/'
expect 78 "a misspelt section without keys" check "$file"
says "unknown section 'tarket'; the nearest known one is 'target'"

write ''
for words in --help --version "--config $file --check-config"; do
    for program in coordinator target draft; do
        # shellcheck disable=SC2086 # words
        "$bin/foretoken-$program" $words >/dev/full 2>"$work/out"
        got=$?
        if [ "$got" -eq 74 ] &&
            grep -q "foretoken-$program: cannot write standard output" "$work/out"; then
            echo "ok   foretoken-$program ${words%% *} into a full disk"
        else
            echo "FAIL foretoken-$program ${words%% *} into a full disk (status $got)"
            cat "$work/out"
            failures=$((failures + 1))
        fi
    done
done

write 's/^\[target\]/&\nmax_num_seqs = 2/'
expect 0 "a worker too small for the coordinator is a warning" check "$file"
says 'warning: \[target\] max_num_seqs is 2: fewer than the coordinator'

write "s|unix:$work/|unix:$work/none/|"
expect 0 "a folder that is not there yet is a warning" check "$file"
says "warning: \[target\] listen is .*: there is no folder $work/none yet"

write 's/^listen = .*c.sock/listen = 0.0.0.0:1/'
expect 78 "a listener beyond loopback" check "$file"
says "$file:2: listen is '0.0.0.0:1'"

# What a process would end with later in its start: KEY = VALUE of a section, and what is said.
refuses() { # SECTION KEY VALUE SAYS
    write "s|^\\[$1\\]|&\\n$2 = $3|"
    expect 78 "[$1] $2 = $3" check "$file"
    says "error: \\[$1\\] .*$4"
}
tls="s|^listen = .*c.sock|listen = 127.0.0.1:1\\ntls_cert = $work/cert.pem|
    s|^target_endpoint|tls_key = $work/key.pem\\n&|"
refuses coordinator token_file "$work/none" "$file:2: token_file: cannot open $work/none"
echo 'name sha256:0' >"$work/tokens"
refuses coordinator token_file "$work/tokens" "$work/tokens line 1: "
write "$tls"
expect 78 "certificates that are not there" check "$file"
says "error: \\[coordinator\\] .*$work/cert.pem"
if openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 1 \
    -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null; then
    write "$tls"
    expect 0 "certificates that are there" check "$file"
    write "$tls"
    sed -i "s|^\\[target\\]|tls_client_ca = $work/ca.pem\\n&|" "$file"
    expect 78 "authorities that are not there" check "$file"
    says "error: \\[coordinator\\] .*$work/ca.pem"
fi
for section in coordinator target draft; do
    refuses $section socket_users "root,nobody-here" "socket_users: no user 'nobody-here' here"
    refuses $section socket_group nobody-here "socket_group: no group 'nobody-here' here"
done
refuses coordinator drafter bigram "$file:2: drafter bigram needs a text .* set drafter_text"
refuses coordinator drafter unigram "drafter unigram needs a text .* set drafter_text"
refuses coordinator drafter_chain ngram,nothing "$file:2: drafter_chain names 'nothing'"
refuses coordinator drafter_chain chain "drafter_chain names 'chain'"
refuses coordinator drafter_text "$work" "$file:2: drafter_text: .*$work"
echo 'some text' >"$work/text"
write "s|^\\[coordinator\\]|&\\ndrafter = chain\\ndrafter_chain = bigram|
    s|^target_endpoint|drafter_text = $work/text\\n&|"
expect 0 "a chain that has its text" check "$file"
for section in target draft; do
    refuses $section device gpu "$file:[0-9]+: device is \"gpu\"; this build has"
    refuses $section device cpu:fast "device is \"cpu:fast\"; this machine can run"
    refuses $section max_model_len 100000 "max_model_len is 100000, the model has"
    refuses $section kv_cache_bytes 1 "kv_cache_bytes is 1, one block of 16 positions takes"
done
write 's/^\[target\]/&\nmax_model_len = 64/; s/^\[coordinator\]/&\nmax_model_len = 65/'
expect 78 "a length that the target worker does not serve" check "$file"
says 'error: \[coordinator\] max_model_len is 65: the target worker serves at most 64'
write 's/^\[coordinator\]/&\nmax_model_len = 1025/'
expect 78 "a length that the target model does not have" check "$file"
says 'error: \[coordinator\] max_model_len is 1025: the target worker serves at most 1024'
write 's/^\[coordinator\]/&\nmax_model_len = 1024/'
expect 0 "a length that the target model has" check "$file"

# Tokenizers count by what they mean, not by their bytes.
cp -r "$models/demo-draft" "$work/draft" && echo >>"$work/draft/tokenizer.json"
write "s|^model = .*demo-draft|model = $work/draft|"
expect 0 "the same tokenizer in other bytes" check "$file"
says ': can be used, 0 errors, 0 warnings'
sed -i 's/<|eot_id|>/<|end_of_turn|>/' "$work/draft/tokenizer.json"
expect 78 "a draft with another tokenizer" check "$file"
says 'error: \[draft\] the draft model has another tokenizer .* end with status 78'

write "s|^\[coordinator\]|&\ntokenizer = $work/draft|"
expect 78 "a tokenizer of the coordinator's that is not the target's" check "$file"
says 'error: \[coordinator\] tokenizer is another one than the target.* end with status 78'
write "s|^\[coordinator\]|&\ntokenizer = $models/demo-draft|"
expect 0 "a tokenizer of the coordinator's that means the same" check "$file"
echo '{' >"$work/draft/tokenizer.json"
write "s|^\[coordinator\]|&\ntokenizer = $work/draft|"
expect 78 "a tokenizer of the coordinator's that cannot be read" check "$file"
says "error: .*$work/draft/tokenizer.json"

# What the caller's environment says is no part of the file.
write ''
FORETOKEN_TARGET_MAX_NUM_SEQS=x expect 0 "the environment of the caller does not count" \
    check "$file"

write 's/^\[target\]/&\nkv_cache_bytes = 3Mi/'
expect 0 "show" show "$file"
says "^kv_cache_bytes = 3145728 ; file $file:6"
says "^max_num_batched_tokens = 512 ; default"
silent '^ready_fd'

expect 66 "a file that is not there" check "$work/none.conf"
expect 64 "no such action" chek "$file"
expect 64 "too many words" check "$file" more
mkdir "$work/bin" && cp "$bin/foretokenctl" "$work/bin"
"$work/bin/foretokenctl" config check "$file" >"$work/out" 2>&1
[ $? -eq 66 ] || { echo "FAIL programs that are not there"; failures=$((failures + 1)); }
says 'foretoken-coordinator is not beside foretokenctl'
[ "$failures" -eq 0 ]
