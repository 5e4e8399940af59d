//! Lengths of time and numbers of bytes as people write them: `15m`, `1h 30m`, `-2s`; `512MiB`, `1GB`, `65536`.
//!
//! Pure text to number; knows nothing of the pipeline file.

use jiff::SignedDuration;
use jiff::fmt::friendly::SpanParser;

const BYTE_UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

/// Signed milliseconds of a friendly duration, or what is wrong with it.
///
/// Days are 24 hours long. Calendar units (months, years) have no fixed length and are refused, as is anything
/// finer than a millisecond: event time would not hold it.
pub(super) fn millis(text: &str) -> Result<i64, String> {
    let span = SpanParser::new().parse_span(text.trim()).map_err(|error| error.to_string())?;
    if span.get_years() != 0 || span.get_months() != 0 {
        return Err("months and years have no fixed length".to_owned());
    }
    let duration: SignedDuration =
        span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).map_err(|error| error.to_string())?;
    if duration.subsec_nanos() % 1_000_000 != 0 {
        return Err("event time is kept in whole milliseconds".to_owned());
    }
    i64::try_from(duration.as_millis()).map_err(|_| "it is longer than event time can hold".to_owned())
}

/// The number of bytes that `text` stands for, or `None` when it is no such number or exceeds 64 bits.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let (_, factor) = BYTE_UNITS.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(millis("15m"), Ok(900_000));
        assert_eq!(millis("1h 30m"), Ok(5_400_000));
        assert_eq!(millis("250ms"), Ok(250));
        assert_eq!(millis("0s"), Ok(0));
        assert_eq!(millis("-2s"), Ok(-2_000));
        assert_eq!(millis("1d"), Ok(86_400_000));
        assert_eq!(millis("1w"), Ok(604_800_000));
    }

    #[test]
    fn durations_without_a_fixed_length_or_below_a_millisecond_are_refused() {
        for text in ["1mo", "1y", "10us", "15", "", "soon", "300000000y"] {
            assert!(millis(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_know_binary_and_decimal_units() {
        assert_eq!(bytes("512MiB"), Some(512 << 20));
        assert_eq!(bytes("1GB"), Some(1_000_000_000));
        assert_eq!(bytes("65536"), Some(65_536));
        assert_eq!(bytes("2 KiB"), Some(2_048));
        for text in ["", "MiB", "1.5GiB", "-1", "1XB", "99999999999TiB"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }
}
