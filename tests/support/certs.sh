#!/bin/sh
# Certificates for tests, made in DIR: ca.pem with ca.key, and of it server (localhost, 127.0.0.1),
# server2 (the same, another key), client (named "tester") and expired; other-ca.pem, and of it
# rogue. Each NAME.pem has its NAME.key.
# usage: certs.sh DIR
set -eu
cd "$1"
exec 2> openssl.log

authority() { # NAME
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
        -subj "/CN=$1 of a test" -keyout "$1.key" -out "$1.pem"
}

issue() { # CA NAME SUBJECT DAYS
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$3" \
        -keyout "$2.key" -out "$2.csr"
    printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n' > "$2.ext"
    openssl x509 -req -in "$2.csr" -CA "$1.pem" -CAkey "$1.key" -CAcreateserial -days "$4" \
        -extfile "$2.ext" -out "$2.pem"
}

authority ca
authority other-ca
issue ca server localhost 2
issue ca server2 localhost 2
issue ca client tester 2
issue ca expired localhost -1
issue other-ca rogue tester 2
