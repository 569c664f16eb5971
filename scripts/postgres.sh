#!/usr/bin/env bash
# A PostgreSQL server of our own, for tests and for trying things out. Nothing of it outlives `stop`.
#
#   scripts/postgres.sh start DIR       # makes a server in DIR and prints its address
#   scripts/postgres.sh stop DIR        # stops it and removes DIR
#   scripts/postgres.sh down DIR        # stops it the hard way and keeps what it holds
#   scripts/postgres.sh up DIR          # starts it again, at the same address
#   scripts/postgres.sh run COMMAND…    # around one command, which finds the address in AMALGAM_TEST_POSTGRES
#   scripts/postgres.sh find            # where the server's programs are; fails where there are none
#
# Writes are not flushed to the disk (fsync is off): what such a server holds is not meant to last. `run` uses the server that
# AMALGAM_TEST_POSTGRES names, if it names one.
set -euo pipefail

fail() {
    echo "postgres: $*" >&2
    exit 1
}

# The folder of the programs, of the oldest version that we support and Debian has.
find_programs() {
    local version
    for version in 15 16 17 18; do
        if [[ -x /usr/lib/postgresql/$version/bin/initdb ]]; then
            echo "/usr/lib/postgresql/$version/bin"
            return 0
        fi
    done
    if command -v initdb >/dev/null 2>&1; then
        dirname "$(command -v initdb)"
        return 0
    fi
    return 1
}

# The server refuses to run as root; Debian's package brings a user for it.
as_server() {
    if [[ $(id -u) == 0 ]]; then
        # From a folder that the user may enter.
        (cd / && exec setpriv --reuid postgres --regid postgres --init-groups -- "$@")
    else
        "$@"
    fi
}

start() {
    local dir=$1 programs password port tries
    programs=$(find_programs) || fail "PostgreSQL is not installed; scripts/setup.sh test installs it"
    [[ ! -e $dir/data ]] || fail "there is a server in $dir already"
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd)
    password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    printf '%s\n' "$password" >"$dir/password"
    [[ $(id -u) != 0 ]] || chown -R postgres:postgres "$dir"
    as_server "$programs/initdb" --pgdata "$dir/data" --username amalgam --pwfile "$dir/password" --auth password \
        --no-locale --encoding UTF8 --no-sync >"$dir/initdb.log" 2>&1 || { cat "$dir/initdb.log" >&2; fail "initdb failed"; }
    cat >>"$dir/data/postgresql.conf" <<SETTINGS
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 200
shared_buffers = 64MB
fsync = off
max_wal_size = 512MB
log_min_messages = warning
SETTINGS
    # A free port is found by trying; it stays the server's own.
    for tries in 1 2 3 4 5 6 7 8 9 10; do
        port=$((20000 + (RANDOM * 32768 + RANDOM) % 40000))
        echo "port = $port" >>"$dir/data/postgresql.conf"
        if launch "$dir" "$programs"; then
            echo "postgres://amalgam:$password@127.0.0.1:$port/postgres" >"$dir/address"
            cat "$dir/address"
            return 0
        fi
    done
    cat "$dir/server.log" >&2
    fail "the server did not start in $tries tries"
}

launch() {
    as_server "$2/pg_ctl" start --pgdata "$1/data" --log "$1/server.log" --wait --timeout 60 --silent >/dev/null 2>&1 </dev/null
}

halt() {
    # Immediately: nothing has to be saved.
    as_server "$2/pg_ctl" stop --pgdata "$1/data" --mode immediate --wait --timeout 30 --silent >/dev/null 2>&1 || true
}

stop() {
    local dir programs
    [[ -d $1/data ]] || fail "there is no server in $1"
    dir=$(cd "$1" && pwd)
    programs=$(find_programs)
    halt "$dir" "$programs"
    rm -rf "$dir"
}

down() {
    [[ -d $1/data ]] || fail "there is no server in $1"
    halt "$(cd "$1" && pwd)" "$(find_programs)"
}

up() {
    [[ -d $1/data ]] || fail "there is no server in $1"
    launch "$(cd "$1" && pwd)" "$(find_programs)" || { cat "$1/server.log" >&2; fail "the server did not start again"; }
}

run() {
    if [[ -n ${AMALGAM_TEST_POSTGRES:-} ]]; then
        exec "$@"
    fi
    local dir child status=0
    dir=$(mktemp -d "${TMPDIR:-/tmp}/amalgam-postgres.XXXXXX")
    # Also after a failure and after a signal; a command that still runs then is ended first.
    trap '[[ -z ${child:-} ]] || kill "$child" 2>/dev/null || true; if [[ -d $dir/data ]]; then stop "$dir"; else rm -rf "$dir"; fi' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    AMALGAM_TEST_POSTGRES=$(start "$dir")
    export AMALGAM_TEST_POSTGRES
    # In the background, so that a signal is seen at once.
    "$@" <&0 &
    child=$!
    wait "$child" || status=$?
    child=
    exit "$status"
}

case ${1:-} in
    find) find_programs ;;
    start | stop | down | up) [[ $# == 2 ]] || fail "which folder?"; "$1" "$2" ;;
    run) [[ $# -ge 2 ]] || fail "which command?"; shift; run "$@" ;;
    *) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
