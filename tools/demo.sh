#!/usr/bin/env bash
# Plays what there is: starts the server with an example plugin, shows what is attached, stops both.
#
# HOOK: filled in as soon as `sagentry serve` and an example plugin exist.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

echo "demo: there is nothing to play yet"
