#!/usr/bin/env bash
# Kills servers under load, many times, and checks after every death that what they had promised was kept: responses, the list of
# turns, usage, budgets, webhooks and the audit.
#
#   scripts/soak.sh [CYCLES]    # so many deaths beside a server that lives, and as many with a restart on one file
#
# Beside the deaths it says how far it is. PostgreSQL is the server that AMALGAM_TEST_POSTGRES names, or one of its own; where
# it is not installed, only the embedded store is tested.
set -euo pipefail
cd "$(dirname "$0")/.."

cycles=${1:-1000}
if [[ -z ${AMALGAM_TEST_POSTGRES:-} ]] && scripts/postgres.sh find >/dev/null; then
    exec scripts/postgres.sh run "$0" "$cycles"
fi
export AMALGAM_SOAK_CYCLES=$cycles
# One after the other, so that each has the machine to itself; their output as it comes.
exec cargo test --locked -p amalgam --test it -- --nocapture --test-threads 1 deaths::deaths_under_load
