#!/usr/bin/env bash
# Runs the tests under branch coverage, child processes included, and reports.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rm -rf build/coverage && mkdir -p build/coverage
.venv/bin/python -m coverage run -m pytest "$@"
.venv/bin/python -m coverage combine --quiet
.venv/bin/python -m coverage report
