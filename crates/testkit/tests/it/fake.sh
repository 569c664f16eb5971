#!/bin/sh
# Stands for the binary in the tests of the kit; FAKE chooses how it behaves.
case "$FAKE" in
serve)
    trap 'echo drained >&2; exit 0' TERM
    echo "$*" >&2
    cat "$3" >&2
    echo 'amalgam listening on http://127.0.0.1:4321'
    while :; do sleep 0.01; done
    ;;
refuse)
    echo 'unknown key `tol`' >&2
    exit 2
    ;;
deaf)
    echo 'amalgam listening on http://127.0.0.1:4321'
    exec sleep 1000
    ;;
esac
