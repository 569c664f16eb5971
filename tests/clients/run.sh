#!/usr/bin/env bash
# Runs real clients against the real binary over scripted upstreams.
#
#   tests/clients/run.sh                 # uses target/debug/amalgam
#   AMALGAM_BIN=path/to/amalgam tests/clients/run.sh
#
# Installs the pinned clients first (a virtual environment under target/clients, node_modules here) and builds nothing.
# Exits with 0 only when both suites pass.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work="$root/target/clients"
venv="$work/venv"

AMALGAM_BIN=$(realpath -m "${AMALGAM_BIN:-$root/target/debug/amalgam}")
export AMALGAM_BIN
if [[ ! -x "$AMALGAM_BIN" ]]; then
    echo "clients: no binary at $AMALGAM_BIN; build it first or set AMALGAM_BIN" >&2
    exit 1
fi

# Each set-up leaves the hash of what it installed, so that an unchanged one is not repeated.
mkdir -p "$work"
is_current() { [[ -f "$1" && "$(cat "$1")" == "$2" ]]; }

python_pins=$(sha256sum <"$here/requirements.txt")
if ! is_current "$venv/pins" "$python_pins"; then
    echo "clients: installing the Python clients"
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
    echo "$python_pins" >"$venv/pins"
fi

node_pins=$(sha256sum <"$here/package-lock.json")
if ! is_current "$here/node_modules/.pins" "$node_pins"; then
    echo "clients: installing the Node clients"
    # Nothing here needs an install script, so none gets to run.
    (cd "$here" && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error)
    echo "$node_pins" >"$here/node_modules/.pins"
fi

# The example for IDEs is TypeScript: its compiler comes with it, and what it makes is what the tests run.
example="$root/examples/ide-client"
example_pins=$(sha256sum <"$example/package-lock.json")
if ! is_current "$example/node_modules/.pins" "$example_pins"; then
    echo "clients: installing the compiler of examples/ide-client"
    (cd "$example" && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error)
    echo "$example_pins" >"$example/node_modules/.pins"
fi
(cd "$example" && npm run --silent build)

# From here on nothing leaves the machine.
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
export NO_PROXY=127.0.0.1,localhost
export OPENAI_AGENTS_DISABLE_TRACING=1
export NEXT_TELEMETRY_DISABLED=1
export PYTHONDONTWRITEBYTECODE=1
export CLIENTS_PYTHON="$venv/bin/python"

status=0
cd "$here"
# Quiet unless something fails.
quietly() {
    local log=$1
    shift
    if ! "$@" >"$log" 2>&1; then
        status=1
        cat "$log"
    fi
}
quietly "$work/python.log" "$venv/bin/python" -m pytest -q --tb=short -p no:cacheprovider python
quietly "$work/node.log" node --test --test-reporter=spec node/*.test.mjs

# The runners' own closing lines.
tail -n 1 "$work/python.log"
grep -E '^. (tests|pass|fail|cancelled|skipped) [0-9]+$' "$work/node.log" || status=1
if ((status != 0)); then
    echo "clients: FAILED" >&2
fi
exit "$status"
