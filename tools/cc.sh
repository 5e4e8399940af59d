#!/bin/sh
# The linker that cargo calls for this project: the machine's `cc`, or the advice how to get one.
# Rust alone cannot link a program, so this has to work before `cargo xtask` can even be built.
# (rustc tells the kind of linker from the name before the dot: keep it `cc`.)

for cc in cc gcc clang; do
  command -v "$cc" >/dev/null 2>&1 && exec "$cc" "$@"
done

# rustc holds back what this script prints until it ends: what takes a while is told on the terminal itself.
progress() {
  { echo "floodmark: $*" >/dev/tty; } 2>/dev/null || true
}

as_root=
if [ "$(id -u)" != 0 ]; then
  as_root="sudo -n"
  $as_root true 2>/dev/null || as_root=unavailable
fi
if command -v apt-get >/dev/null 2>&1 && [ "$as_root" != unavailable ]; then
  progress "no C compiler on this machine; installing gcc with apt-get"
  if $as_root apt-get update >&2 && DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y gcc libc6-dev >&2; then
    exec cc "$@"
  fi
  echo "floodmark: apt-get did not succeed; its words are above" >&2
fi

echo "floodmark: Rust needs a C compiler to link programs, and there is none on this machine.
Install what the build needs with one of these, then repeat the command:
  Debian, Ubuntu   sudo apt-get update && sudo apt-get install -y g++ libclang-dev
  Fedora           sudo dnf install -y gcc-c++ clang-devel
  Arch             sudo pacman -S --needed gcc clang
  Alpine           sudo apk add g++ clang-dev linux-headers
  macOS            xcode-select --install && brew install llvm" >&2
exit 1
