//! How a report reads.

use std::fmt;

use super::CheckReport;
use crate::store::evolution::Verdict;

/// Inputs that are listed one by one; those with something to say always are.
const INPUTS_MAX: usize = 20;

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let would = match (self.verdict, &self.checkpoint) {
            (Verdict::Same, None) => "starts with empty state",
            (Verdict::Same, Some(_)) => "goes on as before",
            (Verdict::Compatible, _) => "goes on, with the changes below",
            (Verdict::Refused, _) => "would be refused",
        };
        writeln!(f, "{}: {would}", self.pipeline)?;
        if let Some(path) = &self.checkpoint {
            writeln!(f, "state {}", path.display())?;
        }
        if let Some(state) = &self.state {
            write!(f, "{state}")?;
        }
        for finding in &self.findings {
            writeln!(f, "{}: {}", finding.verdict.name(), finding.message)?;
            if let Some(remedy) = &finding.remedy {
                writeln!(f, "  remedy: {remedy}")?;
            }
        }
        let telling = |verdict: Verdict| verdict != Verdict::Same;
        let (told, plain): (Vec<_>, Vec<_>) = self.inputs.iter().partition(|input| telling(input.verdict));
        for input in told.iter().chain(plain.iter().take(INPUTS_MAX)) {
            let refused = if telling(input.verdict) { " (refused)" } else { "" };
            let name = input.name.escape_debug();
            writeln!(f, "input {name}: {}{refused}, {}", input.status, input.detail)?;
        }
        if plain.len() > INPUTS_MAX {
            writeln!(f, "and {} more inputs", plain.len() - INPUTS_MAX)?;
        }
        for output in &self.outputs {
            let verdict = match output.verdict {
                Verdict::Same => "",
                Verdict::Compatible => " changes:",
                Verdict::Refused => " refused:",
            };
            match output.kind {
                "files" => write!(f, "output {}:", output.path.display())?,
                kind => write!(f, "output {} ({kind}):", output.name)?,
            }
            writeln!(f, "{verdict} {}", output.detail)?;
            if let Some(remedy) = &output.remedy {
                writeln!(f, "  remedy: {remedy}")?;
            }
        }
        Ok(())
    }
}
