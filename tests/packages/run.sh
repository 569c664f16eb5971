#!/usr/bin/env bash
# Checks what is shipped: tarball, Debian package, systemd unit, container files, nginx configuration, Helm chart.
#
#   tests/packages/run.sh                # packs target/debug/amalgam
#   AMALGAM_BIN=path/to/amalgam tests/packages/run.sh
#
# Installs the pinned checkers first (a virtual environment under target/packages) and builds nothing. A check whose
# program is not installed (systemd-analyze, nginx, helm or go) is counted as skipped.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work="$root/target/packages"
venv="$work/venv"

AMALGAM_BIN=$(realpath -m "${AMALGAM_BIN:-$root/target/debug/amalgam}")
export AMALGAM_BIN
if [[ ! -x "$AMALGAM_BIN" ]]; then
    echo "packages: no binary at $AMALGAM_BIN; build it first or set AMALGAM_BIN" >&2
    exit 1
fi

mkdir -p "$work"
pins=$(sha256sum <"$here/requirements.txt")
if [[ ! -f "$venv/pins" || "$(cat "$venv/pins")" != "$pins" ]]; then
    echo "packages: installing the checkers"
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
    echo "$pins" >"$venv/pins"
fi

# From here on nothing leaves the machine.
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
export NO_PROXY=127.0.0.1,localhost PYTHONDONTWRITEBYTECODE=1
export GO111MODULE=off GOPATH=/usr/share/gocode GOCACHE="$work/go" GOFLAGS=

status=0
cd "$here"
trap 'rm -rf "$work/tmp"' EXIT
"$venv/bin/python" -m pytest -q --tb=short -p no:cacheprovider --basetemp "$work/tmp" -rs . >"$work/packages.log" 2>&1 || status=$?
if ((status != 0)); then
    cat "$work/packages.log"
    echo "packages: FAILED" >&2
fi
# What was left out and why, and the runner's own closing line.
grep '^SKIPPED' "$work/packages.log" || true
tail -n 1 "$work/packages.log"
exit "$status"
