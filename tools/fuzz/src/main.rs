//! One fuzz target under libFuzzer, chosen by `FLOODMARK_FUZZ_TARGET`. `cargo xtask fuzz` builds and starts it.
//!
//! It knows nothing of the targets but their names. libFuzzer brings `main`, which takes its own options.
#![no_main]

use std::sync::OnceLock;

use floodmark::fuzzing::{TARGETS, Target};

fn target() -> &'static Target {
    static TARGET: OnceLock<&Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = std::env::var("FLOODMARK_FUZZ_TARGET").unwrap_or_default();
        let known: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        TARGETS
            .iter()
            .find(|target| target.name == name)
            .unwrap_or_else(|| panic!("FLOODMARK_FUZZ_TARGET is none of {known:?}: {name:?}"))
    })
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target().run)(bytes));
