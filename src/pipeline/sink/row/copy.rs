//! Rows as PostgreSQL's COPY takes them in its text format: tabs between columns, a line feed after each row, `\N` for
//! null, and a backslash before what would be misunderstood.

use super::json::append_value;
use super::text::{append_float, append_i64, append_json_bytes};
use crate::aggregate::{Value, decimal_text};
use crate::event_time::{EventTime, Watermark, Window};
use crate::operator::{JoinedRow, ResultRow, RowKind};
use crate::pipeline::sink::columns::{Cells, TypedRows};
use crate::pipeline::sink::error::SinkError;

/// First and last moment that `timestamptz` holds: 4714-11-24 BC, and the end of the year 294276.
const TIME_MIN_MS: i64 = -210_866_803_200_000;
const TIME_MAX_MS: i64 = 9_224_318_015_999_999;

/// Writes one line per row.
#[derive(Debug)]
pub(in super::super) struct CopyRows {
    rows: TypedRows,
    scratch: Vec<u8>,
}

impl CopyRows {
    #[cfg(any(test, feature = "postgres"))]
    pub(in super::super) fn new(rows: TypedRows) -> Self {
        Self { rows, scratch: Vec::new() }
    }

    pub(in super::super) fn begin(
        &mut self,
        window: Window,
        watermark: Watermark,
        takes_back: Option<RowKind>,
    ) {
        self.rows.begin(window, watermark, takes_back);
    }

    pub(in super::super) fn append(
        &mut self,
        row: &ResultRow<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), SinkError> {
        let mut line = Line { out, scratch: &mut self.scratch, first: true };
        self.rows.walk(row, &mut line)?;
        out.push(b'\n');
        Ok(())
    }

    pub(in super::super) fn append_joined(
        &mut self,
        row: &JoinedRow<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), SinkError> {
        let mut line = Line { out, scratch: &mut self.scratch, first: true };
        self.rows.walk_joined(row, &mut line)?;
        out.push(b'\n');
        Ok(())
    }
}

struct Line<'a> {
    out: &'a mut Vec<u8>,
    scratch: &'a mut Vec<u8>,
    first: bool,
}

impl Line<'_> {
    fn separate(&mut self) {
        if !std::mem::take(&mut self.first) {
            self.out.push(b'\t');
        }
    }
}

impl Cells for Line<'_> {
    fn null(&mut self) {
        self.separate();
        self.out.extend_from_slice(b"\\N");
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.separate();
        // What a text column cannot hold is kept as JSON has it, so that nothing is lost.
        if bytes.contains(&0) || std::str::from_utf8(bytes).is_err() {
            self.scratch.clear();
            append_json_bytes(self.scratch, bytes);
            append_escaped(self.out, self.scratch);
        } else {
            append_escaped(self.out, bytes);
        }
    }

    fn int(&mut self, value: i64) {
        self.separate();
        append_i64(self.out, value);
    }

    fn whole(&mut self, unscaled: i128, scale: u8) {
        self.separate();
        self.out.extend_from_slice(decimal_text(unscaled, scale).as_bytes());
    }

    fn float(&mut self, value: f64) {
        self.separate();
        append_float(self.out, value);
    }

    fn time(&mut self, time: EventTime) {
        self.separate();
        append_timestamp(self.out, time.as_millis());
    }

    fn json(&mut self, value: &Value) {
        self.separate();
        self.scratch.clear();
        append_value(self.scratch, value);
        append_escaped(self.out, self.scratch);
    }
}

fn append_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        let letter = match byte {
            b'\\' => b'\\',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            _ => {
                out.push(byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', letter]);
    }
}

/// Appends a moment in UTC, or the infinity on the side where the type ends.
fn append_timestamp(out: &mut Vec<u8>, millis: i64) {
    if millis < TIME_MIN_MS {
        return out.extend_from_slice(b"-infinity");
    }
    if millis > TIME_MAX_MS {
        return out.extend_from_slice(b"infinity");
    }
    let (days, of_day) = (millis.div_euclid(86_400_000), millis.rem_euclid(86_400_000));
    let (year, month, day) = civil(days);
    let (era_year, era) = if year > 0 { (year, "") } else { (1 - year, " BC") };
    let (seconds, fraction) = (of_day / 1_000, of_day % 1_000);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let text =
        format!("{era_year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{fraction:03}+00{era}");
    out.extend_from_slice(text.as_bytes());
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar of all time, whose year 0 is 1 BC.
///
/// The calendar of `event_time` ends with the year 9999, and the type's does not.
fn civil(days: i64) -> (i64, i64, i64) {
    // Years that begin in March end with the leap day; 400 of them have always as many days.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timestamp(millis: i64) -> String {
        let mut out = Vec::new();
        append_timestamp(&mut out, millis);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn moments_are_written_as_the_server_reads_them() {
        assert_eq!(timestamp(1_357_034_400_050), "2013-01-01 10:00:00.050+00");
        assert_eq!(timestamp(-1), "1969-12-31 23:59:59.999+00");
        assert_eq!(timestamp(951_782_400_000), "2000-02-29 00:00:00.000+00");
        assert_eq!(timestamp(-62_135_596_800_001), "0001-12-31 23:59:59.999+00 BC");
        assert_eq!(timestamp(TIME_MIN_MS), "4714-11-24 00:00:00.000+00 BC");
        assert_eq!(timestamp(TIME_MAX_MS), "294276-12-31 23:59:59.999+00");
        assert_eq!((timestamp(i64::MIN), timestamp(i64::MAX)), ("-infinity".into(), "infinity".into()));
    }

    #[test]
    fn text_never_ends_a_column_or_a_row() {
        let (mut out, mut scratch) = (Vec::new(), Vec::new());
        let mut line = Line { out: &mut out, scratch: &mut scratch, first: true };
        line.bytes(b"a\tb\\N\n\r");
        line.null();
        line.bytes(b"");
        line.bytes(&[0xff]);
        line.bytes(b"a\0b");
        line.whole(-50, 2);
        line.json(&Value::List(vec![Value::Text("x\ty".to_owned())]));
        let expected =
            "a\\tb\\\\N\\n\\r\t\\N\t\t{\"base64\":\"/w==\"}\t\"a\\\\u0000b\"\t-0.50\t[\"x\\\\ty\"]";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
