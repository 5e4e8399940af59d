//! `floodmark inspect fsck`: everything that can be proven of a state directory, with what to do about what is wrong.

use floodmark::inspect::{self, Finding, FsckReport, Severity};

use super::place::Watching;
use super::{Verify, text, verdict};
use crate::CommandResult;
use crate::console::print_report as print;
use crate::run::counted;
use crate::table::printable;

pub(super) fn run(arguments: &Verify) -> CommandResult {
    let place = &arguments.one.place;
    let (which, need) = arguments.which();
    let located = place.locate(need)?;
    let mut watching = Watching::new();
    let mut report = inspect::fsck(&located.path, which, &mut |so_far| watching.scanned(so_far))?;
    drop(watching);
    located.name(&mut report.path);
    report.checkpoints.iter_mut().for_each(|checked| located.name(&mut checked.verified.path));
    print(place.json, &report, describe)?;
    Ok(verdict(report.sound))
}

fn describe(report: &FsckReport) -> String {
    let mut text = String::new();
    for checked in &report.checkpoints {
        text.push_str(&text::verify_one(&checked.verified));
        checked.findings.iter().for_each(|finding| text.push_str(&one(finding)));
    }
    if !report.findings.is_empty() {
        text.push_str("between checkpoints and around them\n");
        report.findings.iter().for_each(|finding| text.push_str(&one(finding)));
    }
    let all = || report.checkpoints.iter().flat_map(|checked| &checked.findings).chain(&report.findings);
    let count = |severity| all().filter(|finding| finding.severity == severity).count() as u64;
    let verified =
        report.checkpoints.iter().map(|checked| checked.verified.problems.len() as u64).sum::<u64>();
    text.push_str(&format!(
        "{}: {}, {}\n",
        if report.sound { "sound" } else { "NOT SOUND" },
        counted(count(Severity::Problem) + verified, "problem", "problems"),
        counted(count(Severity::Warning), "warning", "warnings"),
    ));
    if let Some(advice) = &report.advice {
        text.push_str(&format!("  remedy: {}\n", printable(advice)));
    }
    text
}

fn one(finding: &Finding) -> String {
    let severity = match finding.severity {
        Severity::Problem => "problem",
        Severity::Warning => "warning",
    };
    format!(
        "  {severity}: {} [{}]\n    remedy: {}\n",
        printable(&finding.what),
        finding.rule,
        printable(&finding.advice)
    )
}
