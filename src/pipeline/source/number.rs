//! Numbers from their literal text: integers exact to 64 bits, floats rounded to the nearest.

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

    proptest! {
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
