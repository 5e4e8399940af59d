//! Numbers as results write them, calculated with to their last digit where they have a last digit.

use crate::aggregate::decimal_text;

/// A number written with digits and perhaps a point: every integer and decimal, and floats without an exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exact {
    pub(super) unscaled: i128,
    pub(super) scale: u8,
}

impl Exact {
    /// Reads `-12.50`; `None` for anything else, also for more digits than 128 bits hold.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = whole.strip_prefix('-').unwrap_or(whole);
        let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if digits.is_empty() || !plain(digits) || !plain(fraction) {
            return None;
        }
        let unscaled = format!("{whole}{fraction}").parse().ok()?;
        Some(Self { unscaled, scale: u8::try_from(fraction.len()).ok()? })
    }

    /// Both numbers with the same number of digits behind the point.
    pub(super) fn aligned(self, other: Self) -> Option<(i128, i128, u8)> {
        let scale = self.scale.max(other.scale);
        let lift = |number: Self| {
            let factor = 10_i128.checked_pow(u32::from(scale - number.scale))?;
            number.unscaled.checked_mul(factor)
        };
        Some((lift(self)?, lift(other)?, scale))
    }

    pub(super) fn plus(self, other: Self) -> Option<Self> {
        let (a, b, scale) = self.aligned(other)?;
        Some(Self { unscaled: a.checked_add(b)?, scale })
    }

    pub(super) fn minus(self, other: Self) -> Option<Self> {
        let (a, b, scale) = self.aligned(other)?;
        Some(Self { unscaled: a.checked_sub(b)?, scale })
    }

    pub(super) fn text(self) -> String {
        decimal_text(self.unscaled, self.scale)
    }
}

/// Any number of a result: a JSON number, or the name of a float that JSON has no number for, in quotes.
pub(super) fn float(text: &str) -> Option<f64> {
    match text {
        "\"NaN\"" => Some(f64::NAN),
        "\"Infinity\"" => Some(f64::INFINITY),
        "\"-Infinity\"" => Some(f64::NEG_INFINITY),
        text if text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(text: &str) -> Exact {
        Exact::parse(text).unwrap()
    }

    #[test]
    fn no_digit_is_lost_however_long_the_number_is() {
        let sum = exact("170141183460469231731687303715884105.70").plus(exact("0.02"));
        assert_eq!(sum.unwrap().text(), "170141183460469231731687303715884105.72");
        assert_eq!(exact("-0.5").minus(exact("0.25")).unwrap().text(), "-0.75");
        assert_eq!(exact("7").minus(exact("9")).unwrap().text(), "-2");
    }

    #[test]
    fn what_is_no_plain_number_or_does_not_fit_is_left_to_floats() {
        for text in ["1e5", "\"7\"", "null", "-", "", "1.2.3", "999999999999999999999999999999999999999999"] {
            assert_eq!(Exact::parse(text), None, "{text}");
        }
        assert_eq!(float("1e5"), Some(1e5));
        assert_eq!(float("\"-Infinity\""), Some(f64::NEG_INFINITY));
        assert_eq!(float("\"7\""), None);
        let most = Exact { unscaled: i128::MAX, scale: 0 };
        assert!(most.plus(exact("1")).is_none() && most.minus(exact("0.5")).is_none());
    }
}
