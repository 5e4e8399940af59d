//! Lengths of time as people say them.

/// A length of time with its two largest units: `250 ms`, `1.5 s`, `2 min 5 s`, `3 h 20 min`, `12 d 4 h`.
pub(super) fn length(ms: u64) -> String {
    let seconds = ms / 1_000;
    let with = |large: u64, unit: &str, small: u64, rest: &str| match small {
        0 => format!("{large} {unit}"),
        small => format!("{large} {unit} {small} {rest}"),
    };
    match seconds {
        0 => format!("{ms} ms"),
        1..10 if ms % 1_000 >= 100 => format!("{seconds}.{} s", ms % 1_000 / 100),
        1..60 => format!("{seconds} s"),
        60..3_600 => with(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => with(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => with(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_told_with_two_units() {
        let told = [0, 250, 1_500, 59_999, 125_000, 3_600_000, 12_000_000, 1_051_200_000].map(length);
        assert_eq!(told, ["0 ms", "250 ms", "1.5 s", "59 s", "2 min 5 s", "1 h", "3 h 20 min", "12 d 4 h"]);
    }
}
