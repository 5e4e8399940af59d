#!/bin/sh
# rustc for `cargo xtask fuzz`: the library is compiled with counters that tell libFuzzer which way an input took.
# Only the library: its dependencies stay as the tests have built them, and stable Rust does it.

rustc=$1
shift
case " $* " in
*" --crate-name floodmark "*" --crate-type lib "*)
  exec "$rustc" "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
  ;;
esac
exec "$rustc" "$@"
