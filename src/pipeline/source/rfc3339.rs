//! The common shapes of RFC 3339, read without the calendar library: `2013-01-01T10:15:00[.fraction](Z|±hh:mm)`.
//!
//! Answers only where it is certain to agree with `jiff`; everything else is left to it.

/// Milliseconds since the Unix epoch, rounded down, or `None` when the text is not of the common shape.
pub(super) fn millis(text: &[u8]) -> Option<i64> {
    let (date_time, rest) = text.split_first_chunk::<19>()?;
    let shape = [date_time[4], date_time[7], date_time[10], date_time[13], date_time[16]];
    if shape != *b"--T::" {
        return None;
    }
    let year = pair(date_time[0], date_time[1])? * 100 + pair(date_time[2], date_time[3])?;
    let month = pair(date_time[5], date_time[6])?;
    let day = pair(date_time[8], date_time[9])?;
    let hour = pair(date_time[11], date_time[12])?;
    let minute = pair(date_time[14], date_time[15])?;
    let second = pair(date_time[17], date_time[18])?;
    // The first and last years are left to the library, which knows where its calendar ends.
    let in_range =
        (1..=9998).contains(&year) && (1..=12).contains(&month) && hour < 24 && minute < 60 && second < 60;
    if !in_range || day < 1 || day > days_in_month(year, month) {
        return None;
    }
    let (fraction_ms, rest) = fraction(rest)?;
    let offset_minutes = offset(rest)?;
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute - offset_minutes) * 60 + second;
    Some(seconds * 1_000 + fraction_ms)
}

fn pair(tens: u8, ones: u8) -> Option<i64> {
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    (tens <= 9 && ones <= 9).then(|| i64::from(tens) * 10 + i64::from(ones))
}

/// Milliseconds of `.fraction`, when there is one of one to nine digits, and what follows it.
fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some(digits) = text.strip_prefix(b".") else { return Some((0, text)) };
    let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !(1..=9).contains(&length) {
        return None;
    }
    let (digits, rest) = digits.split_at(length);
    let place = |index: usize| digits.get(index).map_or(0, |digit| i64::from(digit - b'0'));
    Some((place(0) * 100 + place(1) * 10 + place(2), rest))
}

/// Minutes east of UTC.
fn offset(text: &[u8]) -> Option<i64> {
    match *text {
        [b'Z'] => Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (pair(h1, h2)?, pair(m1, m2)?);
            let total = hours * 60 + minutes;
            // "-00:00" says that the offset is unknown, and only the library knows how far offsets may go.
            let certain = hours < 24 && minutes < 60 && (sign == b'+' || total > 0);
            certain.then_some(if sign == b'+' { total } else { -total })
        }
        _ => None,
    }
}

const fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

const fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the Gregorian calendar; years start in March, so that leap days come last.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_library(text: &str) -> Option<i64> {
        let nanos = text.parse::<jiff::Timestamp>().ok()?.as_nanosecond();
        i64::try_from(nanos.div_euclid(1_000_000)).ok()
    }

    fn agree(text: &str) -> bool {
        let ours = millis(text.as_bytes());
        assert!(ours.is_none() || ours == by_library(text), "{text}: {ours:?} {:?}", by_library(text));
        ours.is_some()
    }

    #[test]
    fn every_day_of_every_year_agrees_with_the_library() {
        let mut taken = 0_u32;
        for year in 0..=9999 {
            for month in 1..=12 {
                // Every day of four centuries, the edges of every month elsewhere.
                let all = (1890..2110).contains(&year);
                for day in 0..=32 {
                    if all || matches!(day, 0 | 1 | 28..=32) {
                        taken +=
                            u32::from(agree(&format!("{year:04}-{month:02}-{day:02}T23:59:59.999999999Z")));
                    }
                }
            }
        }
        assert!(taken > 400_000, "the fast path answered {taken} times");
    }

    #[test]
    fn every_second_of_a_day_and_every_offset_agrees_with_the_library() {
        for hour in 0..=24 {
            for minute in 0..=60 {
                for second in [0, 1, 29, 58, 59, 60, 61] {
                    agree(&format!("1969-12-31T{hour:02}:{minute:02}:{second:02}.0005Z"));
                }
                for sign in ['+', '-'] {
                    agree(&format!("2013-03-01T00:30:00{sign}{hour:02}:{minute:02}"));
                }
            }
        }
    }

    #[test]
    fn no_single_changed_byte_makes_it_disagree_with_the_library() {
        for text in
            ["2013-01-01T10:15:00Z", "1969-12-31T23:59:59.123456789-05:30", "2000-02-29T00:00:00.5+14:00"]
        {
            assert!(agree(text));
            for place in 0..text.len() {
                for byte in 0x20..0x7f_u8 {
                    let mut changed = text.as_bytes().to_vec();
                    changed[place] = byte;
                    agree(std::str::from_utf8(&changed).unwrap());
                    changed.truncate(place);
                    agree(std::str::from_utf8(&changed).unwrap());
                }
            }
        }
    }
}
