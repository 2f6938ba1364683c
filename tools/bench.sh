#!/usr/bin/env bash
# Runs every benchmark: bench/*.py, each a program of its own; says so when there is none.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

shopt -s nullglob
benchmarks=(bench/*.py)
if ((${#benchmarks[@]} == 0)); then
  echo "bench: there is no benchmark yet"
  exit 0
fi
mkdir -p build/bench
for benchmark in "${benchmarks[@]}"; do
  echo "bench: $benchmark"
  .venv/bin/python "$benchmark" "$@"
done
