//! The regression guard: one figure for each part of the way of an event, small enough to be taken at every commit.
//!
//! `cargo xtask bench` runs it, keeps what it said, and compares commits; by itself: `cargo bench --bench guard [-- NAME…]`.
//! `--json` prints one object a line. `--once NAME` runs one figure once and prints nothing, for callgrind, which counts
//! inside of [`measure::floodmark_measured`] only; `--counted` lists the figures that have no threads and no disk in them,
//! whose instructions are the same in every run.

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a bench reads the clock and prints")]

#[path = "../support/count.rs"]
mod count;
#[path = "../support/events.rs"]
mod events;
#[path = "../support/nowhere.rs"]
mod nowhere;
#[path = "../support/random.rs"]
mod random;
#[path = "../support/spec.rs"]
mod spec;

mod codec;
mod database;
mod measure;
mod panes;
mod store;

use measure::{Figure, Measured, measure};

const FIGURES: &[Figure] = &[
    Figure {
        name: "codec, pane keys",
        unit: "ns/key",
        counted: true,
        size: 2_000_000,
        run: codec::pane_keys,
    },
    Figure { name: "codec, records", unit: "ns/record", counted: true, size: 200_000, run: codec::records },
    Figure {
        name: "buffer, new panes",
        unit: "ns/event",
        counted: true,
        size: 500_000,
        run: panes::new_panes,
    },
    Figure {
        name: "buffer, known panes",
        unit: "ns/event",
        counted: true,
        size: 2_000_000,
        run: panes::known_panes,
    },
    Figure { name: "fire", unit: "ns/row", counted: true, size: 500_000, run: panes::fire },
    Figure { name: "merge", unit: "ns/pane", counted: false, size: 300_000, run: database::merge },
    Figure { name: "evict", unit: "us/call", counted: false, size: 300_000, run: database::evict },
    Figure { name: "checkpoint", unit: "ns/pane", counted: false, size: 300_000, run: store::checkpoint },
    Figure { name: "restore", unit: "ns/pane", counted: false, size: 300_000, run: store::restore },
];

fn main() -> measure::Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let names: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|argument| !argument.starts_with("--")).collect();
    if let Some(unknown) = names.iter().find(|name| FIGURES.iter().all(|figure| figure.name != **name)) {
        return Err(format!("there is no figure `{unknown}`; these are: {}", all_names().join("; ")).into());
    }
    let wanted = FIGURES.iter().filter(|figure| names.is_empty() || names.contains(&figure.name));
    if has("--counted") {
        wanted.filter(|figure| figure.counted).for_each(|figure| println!("{}", figure.name));
        return Ok(());
    }
    if has("--once") {
        for figure in wanted {
            let sample = (figure.run)(figure.size / measure::ONCE_PART)?;
            println!("{}", sample.count);
        }
        return Ok(());
    }
    if !has("--json") {
        println!("{:24} {:10} {:>12} {:>12}", "figure", "unit", "median", "least");
    }
    for figure in wanted {
        let Measured { median, least, runs } = measure(figure)?;
        let Figure { name, unit, .. } = figure;
        match has("--json") {
            true => println!(
                "{{\"name\":\"{name}\",\"unit\":\"{unit}\",\"median\":{median:.3},\"least\":{least:.3},\"runs\":{runs}}}"
            ),
            false => println!("{name:24} {unit:10} {median:>12.1} {least:>12.1}"),
        }
    }
    Ok(())
}

fn all_names() -> Vec<&'static str> {
    FIGURES.iter().map(|figure| figure.name).collect()
}
