#!/usr/bin/env bash
# Plays what there is with real processes: a server that launches the example plugin, what is attached, the
# judge's verdict on the plugin, an orderly end.
#
# Everything is in a private folder and on ports that the system chooses, so any number may run at once.
# Nothing is left behind, however it ends. The exit code is 0 only if all of it went as the script says.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly root=$PWD
readonly sagentry=$root/.venv/bin/sagentry
readonly patience=30  # seconds
# The settings of whoever calls are not the demo's.
for name in "${!SAGENTRY_@}"; do unset "$name"; done

server=
folder=

step() { printf '\ndemo: %s\n' "$*"; }

fail() {
  echo "demo: error: $*" >&2
  [[ ! -s $folder/log ]] || sed 's/^/  server: /' "$folder/log" >&2
  exit 1
}

# Shows a command as a user types it, and runs it.
play() {
  local word shown='$ sagentry'
  for word in "$@"; do
    word=${word//"$folder"/\$DEMO}
    word=${word//"$root/"/}
    [[ $word != *' '* ]] || word="'$word'"
    shown+=" $word"
  done
  echo "$shown"
  "$sagentry" "$@"
}

is_alive() { kill -0 "$1" 2>/dev/null; }

clean_up() {
  local end=$((SECONDS + patience))
  if [[ -n $server ]] && is_alive "$server"; then
    kill -TERM "$server" || true
    while is_alive "$server" && ((SECONDS < end)); do sleep 0.1; done
    # Its plugins die with it.
    kill -KILL "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  [[ -z $folder ]] || rm -rf "$folder"
}

make_folder() {
  folder=$(mktemp -d "${TMPDIR:-/tmp}/sagentry-demo.XXXXXX")
  if ((${#folder} > 80)); then  # too long for the sockets in it
    rmdir "$folder"
    folder=$(mktemp -d /tmp/sagentry-demo.XXXXXX)
  fi
}

# A target that launches the example plugin and writes down its process id.
example_plugin() {
  printf 'exec:sh -c %q' "$(printf 'echo $$ >%q; exec %s' "$folder/plugin.pid" "$(example_command)")"
}

example_command() { printf '%q plugins/python/examples/upper_preprocessor.py' "$root/.venv/bin/python"; }

start_server() {
  mkfifo "$folder/ready"
  SAGENTRY_PLUGINS__UPPER__TARGET=$(example_plugin) SAGENTRY_PLUGINS__UPPER__CONTRACTS=message_preprocessor \
    "$sagentry" serve --data-dir "$folder/data" --listen "unix:$folder/s.sock" --listen 127.0.0.1:0 \
    >"$folder/ready" 2>"$folder/log" &
  server=$!
  local line
  exec 3<"$folder/ready"
  # The end of a server that cannot start ends this as well.
  read -r -t "$patience" line <&3 || fail "the server did not start"
  echo "${line//"$folder"/\$DEMO}"
}

wait_attached() {
  local end=$((SECONDS + patience))
  until "$sagentry" plugin list --server "unix:$folder/s.sock" >/dev/null 2>&1; do
    ((SECONDS < end)) || fail "the plugin was not attached within $patience s"
    sleep 0.1
  done
}

stop_server() {
  local code=0 left
  kill -TERM "$server"
  wait "$server" || code=$?
  server=
  ((code == 0)) || fail "the server ended with code $code"
  ! is_alive "$(<"$folder/plugin.pid")" || fail "the plugin outlived the server"
  left=$(find "$folder" -type s)
  [[ -z $left ]] || fail "left behind: $left"
}

main() {
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  make_folder

  step "a server that launches the example plugin"
  start_server
  wait_attached

  step "what is attached to it"
  play plugin list --server "unix:$folder/s.sock" || fail "a plugin is not attached"

  step "what the judge says of the example plugin"
  play plugin check --level 0 --target "exec:$(example_command)" || fail "the plugin is not good"

  step "an orderly end"
  stop_server
  echo "server and plugin have ended, no socket is left"

  step "all of it agreed"
}

main
