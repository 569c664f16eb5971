#!/usr/bin/env bash
# Copies pictures that the stories of the console have made (tests/console/run.sh) into docs/images, where the guides show them.
set -euo pipefail
cd "$(dirname "$0")/.."

shots=${CONSOLE_SHOTS:-target/console-shots}
while read -r story image; do
    cp "$shots/$story-light.png" "docs/images/console-$image.png"
done <<'END'
home overview
turns turns
turn turn
turn-context context
playground playground
END
