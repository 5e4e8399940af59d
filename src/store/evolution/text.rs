//! How a verdict reads: a line for each change, old and new shape side by side.

use std::fmt;

use super::{Evolution, Facet, OperatorChange, Verdict};

/// Stored text must not move the cursor of whoever reads it.
pub(super) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

impl fmt::Display for Evolution {
    /// All operators; shapes of those that changed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verdict, epoch, created_by, watermark, operators } = self;
        writeln!(
            f,
            "{}: checkpoint {epoch}, written by floodmark {created_by}, watermark {watermark}",
            verdict.name()
        )?;
        operators.iter().try_for_each(|operator| operator.fmt(f))
    }
}

impl fmt::Display for OperatorChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { noun, name, was, verdict, changes, shape } = self;
        let was = was.as_ref().map_or(String::new(), |was| format!(" (was \"{was}\")"));
        writeln!(f, "{noun} \"{name}\"{was}: {}", verdict.name())?;
        if changes.is_empty() {
            return Ok(());
        }
        write_shape(f, shape)?;
        for change in changes {
            writeln!(f, "  {}: {}: {}", mark(change.verdict), change.what, change.effect)?;
            if let Some(remedy) = &change.remedy {
                writeln!(f, "    remedy: {remedy}")?;
            }
        }
        Ok(())
    }
}

const fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Same => "same",
        Verdict::Compatible => "change",
        Verdict::Refused => "refused",
    }
}

fn write_shape(f: &mut fmt::Formatter<'_>, shape: &[Facet]) -> fmt::Result {
    let stored = |facet: &Facet| facet.stored.clone().unwrap_or_else(|| "-".to_owned());
    let asked = |facet: &Facet| facet.asked.clone().unwrap_or_else(|| "-".to_owned());
    let widest = |texts: &mut dyn Iterator<Item = String>| texts.map(|text| text.chars().count()).max();
    let first = widest(&mut shape.iter().map(|facet| facet.what.clone())).unwrap_or(0);
    let second = widest(&mut shape.iter().map(stored)).unwrap_or(0).max("stored".len());
    writeln!(f, "    {:<first$}  {:<second$}  asked", "", "stored")?;
    for facet in shape {
        let mark = if facet.stored == facet.asked { ' ' } else { '*' };
        writeln!(f, "  {mark} {:<first$}  {:<second$}  {}", facet.what, stored(facet), asked(facet))?;
    }
    Ok(())
}
