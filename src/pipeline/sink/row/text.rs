//! Numbers, times and strings as text, appended to a buffer. One rule each, shared by all formats.

use crate::event_time::{EventTime, Watermark};

/// How times are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeFormat {
    /// RFC 3339 in UTC, with three digits of fraction where it is not zero: `2013-01-01T10:00:00Z`.
    #[default]
    Rfc3339,
    /// Milliseconds since the Unix epoch, as a number.
    EpochMillis,
}

/// Appends a time as it stands outside of quotes; [`TimeFormat::is_quoted`] tells whether JSON needs them.
///
/// Times outside of the calendar's years −9999 to 9999 are written as `<milliseconds>ms`.
pub(in super::super) fn append_time(out: &mut Vec<u8>, time: EventTime, format: TimeFormat) {
    let millis = time.as_millis();
    if format == TimeFormat::EpochMillis {
        return append_i64(out, millis);
    }
    let fraction = millis.rem_euclid(1_000);
    let whole = EventTime::from_millis(millis.saturating_sub(fraction)).to_string();
    match whole.strip_suffix('Z') {
        Some(seconds) if fraction != 0 => {
            out.extend_from_slice(format!("{seconds}.{fraction:03}Z").as_bytes());
        }
        Some(_) => out.extend_from_slice(whole.as_bytes()),
        None => out.extend_from_slice(format!("{millis}ms").as_bytes()),
    }
}

/// Appends a time as a JSON value.
pub(in super::super) fn append_json_time(out: &mut Vec<u8>, time: EventTime, format: TimeFormat) {
    let quote: &[u8] = if format == TimeFormat::Rfc3339 { b"\"" } else { b"" };
    out.extend_from_slice(quote);
    append_time(out, time, format);
    out.extend_from_slice(quote);
}

/// Appends a watermark as a JSON value; null before the first event and after the end of the input.
pub(in super::super) fn append_json_watermark(out: &mut Vec<u8>, watermark: Watermark, format: TimeFormat) {
    match watermark.instant() {
        Some(time) => append_json_time(out, time, format),
        None => out.extend_from_slice(b"null"),
    }
}

#[inline]
pub(in super::super) fn append_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

#[inline]
pub(in super::super) fn append_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends an exact integer; the short path is the common one.
#[inline]
pub(super) fn append_int(out: &mut Vec<u8>, value: i128) {
    match i64::try_from(value) {
        Ok(value) => append_i64(out, value),
        Err(_) => out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
    }
}

/// Appends the shortest text that reads back as the same float, or `NaN`, `Infinity`, `-Infinity` and false.
#[inline]
pub(in super::super) fn append_float(out: &mut Vec<u8>, value: f64) -> bool {
    if value.is_finite() {
        out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
        return true;
    }
    let name: &[u8] = match value {
        value if value.is_nan() => b"NaN",
        value if value > 0.0 => b"Infinity",
        _ => b"-Infinity",
    };
    out.extend_from_slice(name);
    false
}

/// For each byte, how JSON escapes it inside a string: 0 as it is, `u` as `\u00XX`, else by that letter.
const ESCAPES: [u8; 256] = {
    let mut escapes = [0; 256];
    let mut control = 0;
    while control < 0x20 {
        escapes[control] = b'u';
        control += 1;
    }
    escapes[0x08] = b'b';
    escapes[0x09] = b't';
    escapes[0x0a] = b'n';
    escapes[0x0c] = b'f';
    escapes[0x0d] = b'r';
    escapes[b'"' as usize] = b'"';
    escapes[b'\\' as usize] = b'\\';
    escapes
};

/// Appends text as a JSON string.
#[inline]
pub(in super::super) fn append_json_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut plain = 0;
    for (index, &byte) in bytes.iter().enumerate() {
        let escape = ESCAPES[usize::from(byte)];
        if escape != 0 {
            out.extend_from_slice(&bytes[plain..index]);
            append_escape(out, byte, escape);
            plain = index + 1;
        }
    }
    out.extend_from_slice(&bytes[plain..]);
    out.push(b'"');
}

#[cold]
fn append_escape(out: &mut Vec<u8>, byte: u8, escape: u8) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(&[b'\\', escape]);
    if escape == b'u' {
        out.extend_from_slice(b"00");
        out.push(HEX[usize::from(byte >> 4)]);
        out.push(HEX[usize::from(byte & 15)]);
    }
}

/// Appends bytes as a JSON string, or as `{"base64":"…"}` when they are not UTF-8, so that nothing is lost.
#[inline]
pub(in crate::pipeline) fn append_json_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => append_json_text(out, text),
        Err(_) => {
            out.extend_from_slice(b"{\"base64\":\"");
            append_base64(out, bytes);
            out.extend_from_slice(b"\"}");
        }
    }
}

/// Appends the standard base64 of RFC 4648, padded.
fn append_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for chunk in bytes.chunks(3) {
        let byte = |index| u32::from(chunk.get(index).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = (word >> (18 - 6 * place)) & 63;
            out.push(if place > chunk.len() { b'=' } else { ALPHABET[digit as usize] });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(millis: i64, format: TimeFormat) -> String {
        let mut out = Vec::new();
        append_time(&mut out, EventTime::from_millis(millis), format);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn times_have_a_fraction_only_where_there_is_one() {
        assert_eq!(time(1_357_034_400_000, TimeFormat::Rfc3339), "2013-01-01T10:00:00Z");
        assert_eq!(time(1_357_034_400_050, TimeFormat::Rfc3339), "2013-01-01T10:00:00.050Z");
        assert_eq!(time(-1, TimeFormat::Rfc3339), "1969-12-31T23:59:59.999Z");
        assert_eq!(time(-1, TimeFormat::EpochMillis), "-1");
        assert_eq!(time(i64::MAX, TimeFormat::Rfc3339), "9223372036854775807ms");
        assert_eq!(time(i64::MIN, TimeFormat::Rfc3339), "-9223372036854775808ms");
    }

    #[test]
    fn bytes_that_are_not_text_keep_every_bit() {
        let base64 = |bytes: &[u8]| {
            let mut out = Vec::new();
            append_base64(&mut out, bytes);
            String::from_utf8(out).unwrap()
        };
        let vectors = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (length, expected) in vectors.iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..length]), *expected);
        }
        let mut out = Vec::new();
        append_json_bytes(&mut out, &[0xff, 0xfe, 0]);
        assert_eq!(out, br#"{"base64":"//4A"}"#);
    }

    #[test]
    fn floats_are_the_shortest_that_read_back() {
        let float = |value| {
            let mut out = Vec::new();
            append_float(&mut out, value);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            [float(0.1 + 0.2), float(-0.0), float(1e300), float(5e-324)].join(" "),
            "0.30000000000000004 -0.0 1e+300 5e-324"
        );
        assert_eq!(
            [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(float).join(" "),
            "NaN Infinity -Infinity"
        );
    }
}
