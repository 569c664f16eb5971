#!/usr/bin/env bash
# Runs real clients against the real binary over scripted upstreams.
#
#   tests/clients/run.sh                 # uses target/debug/amalgam
#   AMALGAM_BIN=path/to/amalgam tests/clients/run.sh
#
# Installs the pinned clients first (a virtual environment under target/clients, node_modules here) and builds nothing.
# Exits with 0 only when all suites pass.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work="$root/target/clients"
venv="$work/venv"
venv_microsoft="$work/venv-microsoft"

AMALGAM_BIN=$(realpath -m "${AMALGAM_BIN:-$root/target/debug/amalgam}")
export AMALGAM_BIN
if [[ ! -x "$AMALGAM_BIN" ]]; then
    echo "clients: no binary at $AMALGAM_BIN; build it first or set AMALGAM_BIN" >&2
    exit 1
fi

# Each set-up leaves the hash of what it installed, so that an unchanged one is not repeated.
mkdir -p "$work"
is_current() { [[ -f "$1" && "$(cat "$1")" == "$2" ]]; }

# install_python VENV REQUIREMENTS
install_python() {
    local pins
    pins=$(sha256sum <"$2")
    if ! is_current "$1/pins" "$pins"; then
        echo "clients: installing the Python clients of $(basename "$2")"
        python3 -m venv --clear "$1"
        "$1/bin/pip" install --quiet --disable-pip-version-check -r "$2"
        echo "$pins" >"$1/pins"
    fi
}
install_python "$venv" "$here/requirements.txt"
# Semantic Kernel wants an older pydantic than the other clients.
install_python "$venv_microsoft" "$here/requirements-microsoft.txt"

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
pytest() {
    "$1/bin/python" -m pytest -q --tb=short -p no:cacheprovider "${@:2}"
}
quietly "$work/python.log" pytest "$venv" python --ignore=python/microsoft
quietly "$work/microsoft.log" pytest "$venv_microsoft" python/microsoft
quietly "$work/node.log" node --test --test-reporter=spec node/*.test.mjs

# The runners' own closing lines.
tail -n 1 "$work/python.log"
tail -n 1 "$work/microsoft.log"
grep -E '^. (tests|pass|fail|cancelled|skipped) [0-9]+$' "$work/node.log" || status=1
if ((status != 0)); then
    echo "clients: FAILED" >&2
fi
exit "$status"
