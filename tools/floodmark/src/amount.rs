//! Amounts as people read them: bytes, shares of a whole, lengths of time.

use floodmark::event_time::Span;

use crate::run::grouped;

/// Bytes with three digits or so.
pub(crate) fn bytes(bytes: f64) -> String {
    match bytes {
        ..1e3 => format!("{bytes:.0} B"),
        ..1e5 => format!("{:.1} kB", bytes / 1e3),
        ..1e6 => format!("{:.0} kB", bytes / 1e3),
        ..1e8 => format!("{:.1} MB", bytes / 1e6),
        _ => format!("{} MB", grouped((bytes / 1e6).round() as u64)),
    }
}

/// A share in percent; a small one keeps its digits.
pub(crate) fn share(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        ..0.000_1 => "<0.0001 %".to_owned(),
        percent @ ..0.1 => format!("{percent:.4} %"),
        percent => format!("{percent:.2} %"),
    }
}

/// Milliseconds in their two largest units: `23h 48m`. What is smaller is left off.
pub(crate) fn length(millis: i64) -> String {
    let span = Span::from_millis(millis.max(0)).unwrap_or_default().to_string();
    let units: Vec<&str> = span.split(' ').take(2).collect();
    units.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_people_read_them() {
        let sizes = [0.0, 999.0, 4_200.0, 123_456.0, 1_500_000.0, 2_345_000_000.0].map(bytes);
        assert_eq!(sizes[..], ["0 B", "999 B", "4.2 kB", "123 kB", "1.5 MB", "2,345 MB"]);
        let shares = [0.0, 0.000_000_5, 0.000_012_3, 0.05].map(share);
        assert_eq!(shares[..], ["0 %", "<0.0001 %", "0.0012 %", "5.00 %"]);
        assert_eq!([0, 7, 85_721_630, 3_600_000].map(length)[..], ["0s", "7ms", "23h 48m", "1h"]);
    }
}
