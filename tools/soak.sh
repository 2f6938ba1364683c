#!/usr/bin/env bash
# Runs the tests marked `soak`, which take minutes, and searches for new examples of every property.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

.venv/bin/python -m pytest -m "soak or hypothesis" --hypothesis-profile soak --timeout 1800 "$@"
