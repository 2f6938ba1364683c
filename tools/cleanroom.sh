#!/usr/bin/env bash
# Proves that a fresh clone works on a fresh machine: clones HEAD and runs `make test` in the clone.
#
#   root on Debian    in a chroot with a Debian that has python3, make, git and CA certificates, as root
#   anybody else      in a new folder, with a new HOME and an environment of PATH alone
#
# SAGENTRY_CLEANROOM=chroot or =home chooses. SAGENTRY_CLEANROOM_TARGET names another target than test.
# The Debian is kept as build/cleanroom-*.tar. Mirror and suite are the host's; resolver, CA bundle and
# the settings of package clients are passed on. Nothing is left behind: the mounts live in a namespace
# that ends with the run, the folders are removed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly root=$PWD
readonly target=${SAGENTRY_CLEANROOM_TARGET:-test}
readonly packages=python3,make,git,ca-certificates
readonly passed_on='^(PIP_|UV_|NPM_CONFIG_|npm_config_|GOPROXY=|GOSUMDB=|GONOSUMDB=|GOFLAGS=|SSL_CERT_|REQUESTS_CA_BUNDLE=|CURL_CA_BUNDLE=|NODE_EXTRA_CA_CERTS=|GIT_SSL_CAINFO=|https?_proxy=|HTTPS?_PROXY=|no_proxy=|NO_PROXY=)'
readonly not_passed_on='^(PIP_CACHE_DIR|PIP_FIND_LINKS|PIP_TARGET|PIP_USER|PIP_PREFIX|UV_CACHE_DIR|UV_PYTHON|UV_TOOL|UV_PROJECT)'

say() { echo "cleanroom: $*"; }
fail() { echo "cleanroom: error: $*" >&2; exit 1; }

# The settings that package clients need to reach their registries, as NAME=VALUE lines.
client_settings() { env | grep -E "$passed_on" | grep -vE "$not_passed_on" || true; }

# A setting of this machine's apt sources: `mirror` (of the suite's main archive) or `suite`.
apt_source() {
  python3 - "$1" <<'PYTHON'
import pathlib, re, sys

release = dict(
    line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines() if "=" in line
)
suite = release.get("VERSION_CODENAME", "").strip('"')
if sys.argv[1] == "suite":
    print(suite)
    raise SystemExit(not suite)
etc = pathlib.Path("/etc/apt")
files = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]
text = "\n\n".join(path.read_text() for path in files if path.is_file())
deb822 = [
    uri
    for stanza in re.split(r"\n\s*\n", text)
    for uris in re.findall(r"(?m)^URIs:\s*(.+)$", stanza)
    for suites in re.findall(r"(?m)^Suites:\s*(.+)$", stanza)
    if suite in suites.split()
    for uri in uris.split()
]
one_line = re.findall(rf"(?m)^deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+{re.escape(suite)}\s", text)
mirrors = deb822 + one_line
print(mirrors[0] if mirrors else "")
raise SystemExit(not mirrors)
PYTHON
}

ensure_debootstrap() {
  if ! command -v debootstrap >/dev/null; then
    [[ "${SAGENTRY_APT:-}" != 0 ]] || fail "debootstrap is missing and SAGENTRY_APT=0; install it"
    say "installing the Debian package debootstrap (SAGENTRY_APT=0 forbids it)"
    local install=(apt-get install -y -qq --no-install-recommends debootstrap)
    export DEBIAN_FRONTEND=noninteractive
    "${install[@]}" >/dev/null 2>&1 || { apt-get update -qq && "${install[@]}" >/dev/null; }
  fi
}

# Unpacks the empty Debian into a folder; makes and keeps it on the first call.
unpack_debian() {
  local room=$1 suite mirror base
  suite=$(apt_source suite) || fail "/etc/os-release names no suite"
  base=build/cleanroom-$suite-$(dpkg --print-architecture)-${packages//,/-}.tar
  if [[ ! -f $base ]]; then
    ensure_debootstrap
    mirror=$(apt_source mirror) || fail "the apt sources of this machine name no mirror of $suite"
    say "making an empty Debian $suite with ${packages//,/, } (kept as $base)"
    debootstrap --variant=minbase --include="$packages" "$suite" "$room" "$mirror" >build/cleanroom-debootstrap.log 2>&1 ||
      fail "debootstrap failed: see build/cleanroom-debootstrap.log"
    rm -f "$room"/var/cache/apt/archives/*.deb
    tar --one-file-system -cf "$base.part" -C "$room" .
    mv "$base.part" "$base"
  else
    say "unpacking $base"
    tar -xf "$base" -C "$room"
  fi
}

# Puts a host file at the same place in the room.
carry() {
  local file=$1 room=$2
  [[ -f $file ]] || return 0
  mkdir -p "$room$(dirname "$file")"
  cp --dereference "$file" "$room$file"
}

furnish() {
  local room=$1 value
  carry /etc/resolv.conf "$room"
  carry /etc/hosts "$room"
  carry /etc/ssl/certs/ca-certificates.crt "$room"
  while IFS='=' read -r _ value; do
    [[ $value != /* ]] || carry "$value" "$room"
  done < <(client_settings)
  apt-config dump | grep -iE '^Acquire::(http|https)::Proxy' >"$room/etc/apt/apt.conf.d/90cleanroom" || true
}

clone() {
  local folder=$1
  git clone --quiet --no-hardlinks "$root" "$folder"
  git -C "$folder" checkout --quiet --detach "$(git -C "$root" rev-parse HEAD)"
  git -C "$folder" remote remove origin
}

run_in_chroot() {
  local room=$1
  unpack_debian "$room"
  chmod 755 "$room"  # it is the root folder of other users as well, and mktemp made it for one
  furnish "$room"
  clone "$room/srv/sagentry"
  local settings=()
  mapfile -t settings < <(client_settings)
  say "make $target, as root in the empty Debian"
  # The mounts are private to this process tree: they are gone when it ends, however it ends.
  ROOM=$room TARGET=$target unshare --mount --propagation private -- bash -euc '
    mount -t proc proc "$ROOM/proc" 2>/dev/null || mount --rbind /proc "$ROOM/proc"
    mount --rbind /dev "$ROOM/dev"
    room=$ROOM target=$TARGET
    exec 9>&-  # what runs in there does not hold the lock
    exec env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      "$@" chroot "$room" make -C /srv/sagentry "$target"
  ' cleanroom "${settings[@]}"
}

run_in_home() {
  local room=$1
  mkdir -p "$room/home"
  clone "$room/sagentry"
  local settings=()
  mapfile -t settings < <(client_settings)
  say "make $target, in a new clone with a new HOME"
  env -i HOME="$room/home" PATH="$PATH" "${settings[@]}" make -C "$room/sagentry" "$target" 9>&-
}

main() {
  local way=${SAGENTRY_CLEANROOM:-}
  if [[ -z $way ]]; then
    way=home
    [[ $EUID != 0 || ! -f /etc/debian_version ]] || way=chroot
  fi
  [[ -z $(git status --porcelain) ]] || say "uncommitted changes are not part of this"
  mkdir -p build
  exec 9>build/cleanroom.lock
  flock --nonblock 9 || { say "another one is running, waiting for it"; flock 9; }
  rm -rf --one-file-system build/cleanroom.??????  # left by a run that was killed; its mounts are gone
  room=$(mktemp -d build/cleanroom.XXXXXX)
  room=$root/$room
  # The room may hold device nodes and files of root, but no mount: those ended with their namespace.
  trap 'rm -rf --one-file-system "$room"' EXIT
  trap 'exit 130' INT TERM
  case $way in
    chroot) run_in_chroot "$room" ;;
    home) run_in_home "$room" ;;
    *) fail "SAGENTRY_CLEANROOM is chroot or home, not $way" ;;
  esac
  say "green: $(git rev-parse --short HEAD)"
}

main
