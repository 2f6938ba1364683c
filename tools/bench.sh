#!/usr/bin/env bash
# Runs the benchmarks, each a program of its own that puts its ratios into build/bench.json.
#   tools/bench.sh                       all of them
#   tools/bench.sh fan_out --only memory one, with its arguments
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

.venv/bin/python tools/setup.py --bench
if (($# > 0)); then
  .venv/bin/python -m "bench.$1" "${@:2}"
  exit
fi
for benchmark in fan_out journal sql_store; do
  echo "bench: $benchmark"
  .venv/bin/python -m "bench.$benchmark"
done
