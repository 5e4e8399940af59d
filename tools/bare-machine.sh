#!/usr/bin/env bash
# Runs a command of this project on a fresh Debian that has nothing but Rust, to see what a new user sees.
#
#   tools/bare-machine.sh [-d DIRECTORY] [-s SUITE] [COMMAND…]       default: cargo xtask test
#
# Makes a minimal Debian with debootstrap in DIRECTORY (default: a new one under /var/tmp, removed afterwards; a
# directory named with -d is kept, and its system reused), puts this machine's Rust and the last commit there, and runs
# COMMAND inside. Needs root and debootstrap. Package sources, proxy and certificates are those of this machine.
set -euo pipefail

suite=bookworm root= keep=
while getopts d:s: option; do
  case $option in
    d) root=$OPTARG keep=yes ;;
    s) suite=$OPTARG ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- cargo xtask test
[ "$(id -u)" = 0 ] || { echo "bare-machine: needs root, for chroot" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "bare-machine: install debootstrap first: apt-get install debootstrap" >&2; exit 3; }
command -v cargo >/dev/null || { echo "bare-machine: this machine has no Rust to lend" >&2; exit 3; }

repo=$(cd "$(dirname "$0")/.." && pwd)
root=${root:-$(mktemp -d /var/tmp/bare-machine.XXXXXX)}
mounted=()
step() { printf '\n=== bare machine, %s s: %s\n' "$SECONDS" "$*"; }

# Mounts must be gone before anything below them is removed.
leave() {
  local at
  for ((at = ${#mounted[@]} - 1; at >= 0; at--)); do umount "${mounted[at]}" || umount -l "${mounted[at]}" || return; done
  [ -n "$keep" ] || rm -rf --one-file-system "$root"
}
trap leave EXIT
lend() { mkdir -p "$2" && mount --bind "$1" "$2" && mounted+=("$2") && mount -o remount,bind,ro "$2"; }

# The first archive that apt uses here; any mirror has the suite.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep -m 1 -E '/(debian|ubuntu)/?$' || true)
if [ ! -e "$root/etc/debian_version" ]; then
  step "minimal Debian $suite"
  debootstrap --variant=minbase "$suite" "$root" ${mirror:+"$mirror"} >"$root.log" 2>&1 || { tail -n 20 "$root.log"; exit 1; }
  rm -f "$root.log"
fi

step "this machine's way to the outside: names, certificates, proxy"
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
mkdir -p "$root/etc/ssl/certs"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
{ grep -lsi proxy /etc/apt/apt.conf /etc/apt/apt.conf.d/* || true; } | xargs -r cp -t "$root/etc/apt/apt.conf.d/"
passed=()
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY CARGO_HTTP_CAINFO CARGO_BUILD_JOBS; do
  [ -z "${!name:-}" ] || passed+=("$name=${!name}")
done

step "Rust, and nothing else"
lend "$(rustc --print sysroot)" "$root/opt/rust"
mkdir -p "$root/root/.cargo"
for config in "${CARGO_HOME:-$HOME/.cargo}"/config{,.toml}; do
  [ ! -e "$config" ] || cp -L "$config" "$root/root/.cargo/"
done
[ -e "$root/proc/self" ] || { mount -t proc proc "$root/proc" && mounted+=("$root/proc"); }
for tool in cc c++ clang git; do
  ! chroot "$root" sh -c "command -v $tool" >/dev/null || echo "note: $tool is there already (the directory was used before)"
done

step "the last commit: $(git -C "$repo" log -1 --format='%h %s')"
mkdir -p "$root/root/floodmark"
find "$root/root/floodmark" -mindepth 1 -maxdepth 1 ! -name target -exec rm -rf {} +
git -C "$repo" archive HEAD | tar -x -C "$root/root/floodmark"

step "$*"
status=0
chroot "$root" env -i HOME=/root PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  LANG=C.UTF-8 SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt ${passed[@]+"${passed[@]}"} \
  sh -c 'cd /root/floodmark && exec "$@"' sh "$@" </dev/null || status=$?
step "done with exit code $status"
exit "$status"
