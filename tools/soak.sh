#!/usr/bin/env bash
# Runs the tests marked `soak`, which take minutes; says so when there is none.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

status=0
.venv/bin/python -m pytest -m soak --timeout 1800 "$@" || status=$?
# pytest's "no tests ran" is the truth and no failure.
if [[ $status == 5 ]]; then
  echo "soak: there is no soak test yet"
  exit 0
fi
exit "$status"
