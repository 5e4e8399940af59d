//! Numbers from their literal text: integers exact to 64 bits, decimals exact to 18 digits, floats rounded to the
//! nearest.

use crate::event::{DECIMAL_DIGITS_MAX, has_decimal_digits};

/// What a literal that should be an integer turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Integer {
    /// An integer.
    Exact(i64),
    /// An integer beyond 64 bits.
    TooLarge,
    /// A number with a fraction or an exponent.
    Fraction,
    /// No number.
    NotANumber,
}

/// Reads a decimal integer with an optional sign.
pub(super) fn integer(text: &[u8]) -> Integer {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return Integer::NotANumber;
    }
    // Counted downwards, because the range of i64 reaches one further there. Of 18 digits none can overflow.
    let mut value = 0_i64;
    for (place, &byte) in digits.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return if float(text).is_some() { Integer::Fraction } else { Integer::NotANumber };
        }
        let next = if place < 18 {
            Some(value * 10 - i64::from(digit))
        } else {
            value.checked_mul(10).and_then(|value| value.checked_sub(i64::from(digit)))
        };
        match next {
            Some(next) => value = next,
            None if digits.iter().all(u8::is_ascii_digit) => return Integer::TooLarge,
            None => return if float(text).is_some() { Integer::Fraction } else { Integer::NotANumber },
        }
    }
    match if negative { Some(value) } else { value.checked_neg() } {
        Some(value) => Integer::Exact(value),
        None => Integer::TooLarge,
    }
}

/// Reads a decimal float, correctly rounded; infinite when it is too large. `None` for anything that is not written
/// in digits, so also for `NaN` and `inf`.
pub(super) fn float(text: &[u8]) -> Option<f64> {
    let plain = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    if !text.iter().all(plain) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// What a literal that should be a decimal turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FixedPoint {
    /// A decimal, times ten to the power of the scale.
    Exact(i64),
    /// More digits than a decimal has.
    TooLarge,
    /// Digits beyond the scale that are not zero.
    TooFine,
    /// No number.
    NotANumber,
}

/// Reads a decimal number of `scale` digits behind the point. An exponent is taken at its word; nothing is rounded.
pub(super) fn fixed_point(text: &[u8], scale: u8) -> FixedPoint {
    if float(text).is_none() {
        return FixedPoint::NotANumber;
    }
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (digits, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&text[..at], exponent(&text[at + 1..])),
        None => (text, 0),
    };
    // Where the digit at hand stands: this many places before the last one that is kept.
    let point = digits.iter().position(|&byte| byte == b'.').unwrap_or(digits.len());
    let mut place = exponent.saturating_add(i64::from(scale)).saturating_add(point as i64);
    let mut value = 0_i64;
    for digit in digits.iter().filter(|&&byte| byte != b'.').map(|byte| i64::from(byte - b'0')) {
        place = place.saturating_sub(1);
        if digit == 0 {
            continue;
        }
        if place < 0 {
            return FixedPoint::TooFine;
        }
        let power = u32::try_from(place).ok().filter(|&place| place < u32::from(DECIMAL_DIGITS_MAX));
        match power {
            Some(place) => value += digit * 10_i64.pow(place),
            None => return FixedPoint::TooLarge,
        }
    }
    debug_assert!(has_decimal_digits(value));
    FixedPoint::Exact(if negative { -value } else { value })
}

/// An exponent as it is written, or the nearest that has the same effect.
fn exponent(text: &[u8]) -> i64 {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let value = digits.iter().fold(0_i64, |value, &byte| {
        value.saturating_mul(10).saturating_add(i64::from(byte.wrapping_sub(b'0')))
    });
    if negative { -value } else { value }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn integers_are_exact_to_both_ends() {
        assert_eq!(integer(b"9223372036854775807"), Integer::Exact(i64::MAX));
        assert_eq!(integer(b"-9223372036854775808"), Integer::Exact(i64::MIN));
        assert_eq!(integer(b"9223372036854775808"), Integer::TooLarge);
        assert_eq!(integer(b"-9223372036854775809"), Integer::TooLarge);
        assert_eq!(integer(b"00000000000000000000012"), Integer::Exact(12));
        assert_eq!(integer(b"-0"), Integer::Exact(0));
    }

    #[test]
    fn what_is_not_an_integer_is_told_apart() {
        assert_eq!(integer(b"3.0"), Integer::Fraction);
        assert_eq!(integer(b"1e3"), Integer::Fraction);
        assert_eq!(integer(b"99999999999999999999.5"), Integer::Fraction);
        for text in ["", "-", "NA", "12a", "NaN", "inf", "1 2", "--1", "99999999999999999999x"] {
            assert_eq!(integer(text.as_bytes()), Integer::NotANumber, "{text}");
        }
        assert_eq!(float(b"inf"), None);
        assert_eq!(float(b"NaN"), None);
        assert_eq!(float(b"1e999"), Some(f64::INFINITY));
    }

    #[test]
    fn decimals_are_taken_digit_by_digit_and_never_rounded() {
        use FixedPoint::{Exact, NotANumber, TooFine, TooLarge};
        for (text, scale, expected) in [
            ("19.90", 2, Exact(1_990)),
            ("-0.1", 2, Exact(-10)),
            ("7", 2, Exact(700)),
            ("1.500", 1, Exact(15)),
            ("1.25", 1, TooFine),
            ("1e2", 0, Exact(100)),
            ("12345e-3", 3, Exact(12_345)),
            ("12345e-3", 2, TooFine),
            ("0e999999999999999999999", 2, Exact(0)),
            ("1e999999999999999999999", 2, TooLarge),
            ("1e-999999999999999999999", 18, TooFine),
            ("999999999999999999", 0, Exact(999_999_999_999_999_999)),
            ("1000000000000000000", 0, TooLarge),
            ("10000000000000000.00", 2, TooLarge),
            ("000000000000000000000001.5", 1, Exact(15)),
            (".5", 1, Exact(5)),
            ("5.", 1, Exact(50)),
            ("", 1, NotANumber),
            (".", 1, NotANumber),
            ("1,5", 1, NotANumber),
            ("NaN", 1, NotANumber),
            ("1e", 1, NotANumber),
        ] {
            assert_eq!(fixed_point(text.as_bytes(), scale), expected, "{text} scale {scale}");
        }
    }

    proptest! {
        #[test]
        fn every_decimal_reads_back(value in -999_999_999_999_999_999_i64..=999_999_999_999_999_999, scale in 0_u8..=18) {
            let text = crate::aggregate::decimal_text(i128::from(value), scale);
            prop_assert_eq!(fixed_point(text.as_bytes(), scale), FixedPoint::Exact(value), "{}", text);
        }

        #[test]
        fn every_integer_and_float_reads_back(value in any::<i64>(), number in proptest::num::f64::NORMAL) {
            prop_assert_eq!(integer(value.to_string().as_bytes()), Integer::Exact(value));
            prop_assert_eq!(float(number.to_string().as_bytes()), Some(number));
        }

        #[test]
        fn wide_integers_agree_with_i128(value in any::<i128>()) {
            let expected = i64::try_from(value).map_or(Integer::TooLarge, Integer::Exact);
            prop_assert_eq!(integer(value.to_string().as_bytes()), expected);
        }
    }
}
