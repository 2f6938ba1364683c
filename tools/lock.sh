#!/usr/bin/env bash
# Renews requirements.lock, requirements-proto.lock and bench/requirements.lock: pins and hashes, never an address, so that they
# hold wherever a registry or a mirror of it is reached. Arguments go to uv (--upgrade, --upgrade-package x).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# uv does not read pip's setting of the index.
if [[ -n "${PIP_INDEX_URL:-}" ]]; then
  export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$PIP_INDEX_URL}"
fi

compile() {
  .venv/bin/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url "$@"
}

compile pyproject.toml --all-extras --group dev --output-file requirements.lock "$@"
compile --group proto --output-file requirements-proto.lock "$@"
compile bench/requirements.in --python-version 3.11 --output-file bench/requirements.lock "$@"
