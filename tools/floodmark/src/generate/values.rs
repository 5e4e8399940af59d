//! How shares, durations, lateness, skew and silence are written on the command line. Messages say what is expected.

use std::time::Duration;

use floodmark::pipeline::generate::{Lateness, Silence, Skew};

/// A share: `5%` or `0.05`.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let (digits, scale) = text.strip_suffix('%').map_or((text, 1.0), |digits| (digits, 100.0));
    match digits.parse::<f64>() {
        Ok(number) if (0.0..=scale).contains(&number) => Ok(number / scale),
        _ => Err(format!("`{text}` is not a share; write 5% or 0.05")),
    }
}

/// `SHARE:FROM-TO`, such as `95%:0-5s`; without a range, `SHARE:TO` is a fixed delay.
pub(super) fn lateness(text: &str) -> Result<Lateness, String> {
    let expected = || format!("`{text}` is not a lateness; write SHARE:FROM-TO, such as 95%:0-5s");
    let (weight, range) = text.split_once(':').ok_or_else(expected)?;
    let (from, to) = range_ms(range).ok_or_else(expected)?;
    let bound = |millis: u64| u32::try_from(millis).map_err(|_| expected());
    Ok(Lateness { share: share(weight)?, min_ms: bound(from)?, max_ms: bound(to)? })
}

/// `PARTITION:FROM-TO`, such as `2:1m-5m`.
pub(super) fn silence(text: &str) -> Result<Silence, String> {
    let parsed = text.split_once(':').and_then(|(partition, range)| {
        let (from_ms, until_ms) = range_ms(range)?;
        Some(Silence { partition: partition.parse().ok()?, from_ms, until_ms })
    });
    let wrong = || format!("`{text}` is not a silence; write PARTITION:FROM-TO, such as 2:1m-5m");
    parsed.filter(|gap| gap.from_ms < gap.until_ms).ok_or_else(wrong)
}

/// `uniform`, or `zipf:EXPONENT`.
pub(super) fn skew(text: &str) -> Result<Skew, String> {
    if text == "uniform" {
        return Ok(Skew::Uniform);
    }
    let exponent = text.strip_prefix("zipf:").and_then(|exponent| exponent.parse().ok());
    exponent
        .map(|exponent| Skew::Zipf { exponent })
        .ok_or_else(|| format!("`{text}` is not a skew; write uniform or zipf:1.1"))
}

/// A length of time: `500ms`, `30s`, `10m`, `1h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let parsed = millis(text, None).filter(|&millis| millis > 0);
    parsed
        .map(Duration::from_millis)
        .ok_or_else(|| format!("`{text}` is not a length of time; write 500ms, 30s, 10m or 1h"))
}

/// `FROM-TO` in milliseconds. A bound without a unit takes that of the other; a single bound is both.
fn range_ms(text: &str) -> Option<(u64, u64)> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (_, unit) = split_unit(to);
    let to_ms = millis(to, None)?;
    let from_ms = millis(from, Some(unit))?;
    (from_ms <= to_ms).then_some((from_ms, to_ms))
}

fn split_unit(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()))
}

fn millis(text: &str, other_unit: Option<&str>) -> Option<u64> {
    let (digits, unit) = split_unit(text);
    let unit = if unit.is_empty() { other_unit.unwrap_or("") } else { unit };
    let factor = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        // Zero needs no unit.
        "" if digits == "0" => 1,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_without_a_unit_takes_that_of_the_other() {
        assert_eq!(lateness("5%:30-60s"), Ok(Lateness { share: 0.05, min_ms: 30_000, max_ms: 60_000 }));
        assert_eq!(lateness("1:500ms-2s"), Ok(Lateness { share: 1.0, min_ms: 500, max_ms: 2_000 }));
        assert_eq!(lateness("0.5:0"), Ok(Lateness { share: 0.5, min_ms: 0, max_ms: 0 }));
        assert_eq!(silence("2:1m-5m"), Ok(Silence { partition: 2, from_ms: 60_000, until_ms: 300_000 }));
        assert_eq!(skew("zipf:1.1"), Ok(Skew::Zipf { exponent: 1.1 }));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_an_example() {
        for wrong in ["95%", "95%:5s-0", "95%:5", "95%:0-5x", "x:0-5s", "200%:0-5s", "1:0-2000h"] {
            assert!(lateness(wrong).is_err_and(|message| message.contains("write")), "{wrong}");
        }
        for wrong in ["2", "a:0-1s", "2:5s-5s", "2:-1s"] {
            assert!(silence(wrong).is_err_and(|message| message.contains("2:1m-5m")), "{wrong}");
        }
        for wrong in ["", "5", "0s", "-1s", "5 days"] {
            assert!(duration(wrong).is_err_and(|message| message.contains("30s")), "{wrong}");
        }
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert!(skew("zipf").is_err() && skew("zipf:").is_err() && share("-1").is_err());
    }
}
