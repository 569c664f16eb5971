#!/usr/bin/env bash
# Installs what is missing on a Debian machine that has cargo.
#
#   scripts/setup.sh build    # a C compiler
#   scripts/setup.sh release  # also what reads the counts of a build that counts; without it a server can still be built
#   scripts/setup.sh test     # also PostgreSQL, Prometheus, and Python with venv, Node, npm and Chromium for the tests with real
#                             # clients; nginx for the tests of packages, if it can be had
#
# Leaves alone what is there. Needs root only when something is missing.
set -euo pipefail

purpose=${1:-test}
missing=()

has() { command -v "$1" >/dev/null 2>&1; }

compiles() { echo '#include <stdlib.h>' | cc -E -x c - >/dev/null 2>&1; }

if ! has cargo; then
    echo "setup: cargo is missing; install Rust with rustup first" >&2
    exit 1
fi
if ! has cc || ! compiles; then
    missing+=(gcc libc6-dev)
fi
if [[ "$purpose" == release ]] && ! "$(dirname "$0")/release.sh" tools >/dev/null; then
    if [[ $(id -u) == 0 ]] && has apt-get; then
        missing+=(llvm-19)
    else
        echo "setup: llvm-profdata is missing (as root on Debian: apt-get install llvm-19)" >&2
        purpose=build
    fi
fi
if [[ "$purpose" == test ]]; then
    if ! has python3 || ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
        missing+=(python3 python3-venv)
    fi
    has node || missing+=(nodejs)
    has npm || missing+=(npm)
    # A server of their own for the tests that need one; psql and openssl come with it.
    if ! "$(dirname "$0")/postgres.sh" find >/dev/null || ! has psql || ! has openssl; then
        missing+=(postgresql postgresql-client openssl)
    fi
    # The examples of the README use curl and jq.
    has curl || missing+=(curl ca-certificates)
    has jq || missing+=(jq)
    # The tests of web pages drive a real browser.
    [[ -x "${CHROMIUM_BIN:-/usr/bin/chromium}" ]] || missing+=(chromium)
    # Metrics and alert rules are checked by promtool, and scraped by a real Prometheus.
    has promtool && has prometheus || missing+=(prometheus)
    # `codex exec` works in repositories, and the tests give it one.
    has git || missing+=(git)
fi

# What a few tests can do without: they are counted as skipped where it is missing.
optional=()
if [[ "$purpose" == test ]]; then
    # The packages' configuration of nginx is tested with a real one.
    has nginx || [[ -x /usr/sbin/nginx ]] || optional+=(nginx-light)
fi

if ((${#missing[@]} > 0)); then
    if [[ $(id -u) != 0 ]] || ! has apt-get; then
        echo "setup: please install ${missing[*]} (as root on Debian: apt-get install ${missing[*]})" >&2
        exit 1
    fi
    echo "setup: installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if ((${#optional[@]} > 0)) && [[ $(id -u) == 0 ]] && has apt-get; then
    echo "setup: installing ${optional[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # No service is started: the tests run their own.
    { apt-get update -qq && RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${optional[@]}"; } >/dev/null 2>&1 ||
        echo "setup: could not install ${optional[*]}; the tests that need it are skipped"
fi

if [[ "$purpose" == test ]]; then
    if (($(node -p 'process.versions.node.split(".")[0]') < 20)); then
        echo "setup: node $(node --version) is older than 20, which some of the clients ask for" >&2
    fi
    if ! cargo nextest --version >/dev/null 2>&1; then
        echo "setup: cargo-nextest is not installed; the tests run with cargo test"
    fi
fi
echo "setup: everything needed to $purpose is here"
