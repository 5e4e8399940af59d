//! Axes: from numbers to a place between 0 and 1, and the ticks that are named.

/// One axis.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) label: String,
    scale: Scale,
    low: f64,
    high: f64,
    /// Places that get a line and a name.
    pub(super) ticks: Vec<(f64, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    Linear,
    /// Logarithmic; what is below the lowest number is drawn there.
    Log,
    /// Logarithmic from `unit` on and with a place for zero.
    LogFromZero {
        unit: f64,
    },
}

impl Scale {
    fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log => value.log10(),
            Self::LogFromZero { unit } => (1.0 + value / unit).log10(),
        }
    }
}

impl Axis {
    /// From zero to a round number that holds `highest`, with four or five named numbers on the way.
    pub(crate) fn linear(label: &str, highest: f64, name: impl Fn(f64) -> String) -> Self {
        let high = nice(highest);
        let ticks = (0..=4).map(|quarter| high * f64::from(quarter) / 4.0);
        let ticks = ticks.map(|value| (value, name(value))).collect();
        Self { label: label.to_owned(), scale: Scale::Linear, low: 0.0, high, ticks }
    }

    /// Logarithmic over whole powers of ten that hold `lowest` and `highest`.
    pub(crate) fn log(label: &str, lowest: f64, highest: f64, name: impl Fn(f64) -> String) -> Self {
        let lowest = if lowest > 0.0 && lowest.is_finite() { lowest } else { 1.0 };
        let first = lowest.log10().floor() as i32;
        let last = (highest.max(lowest).log10().ceil() as i32).max(first + 1);
        let ticks = (first..=last).map(|power| 10f64.powi(power)).map(|value| (value, name(value)));
        Self {
            label: label.to_owned(),
            scale: Scale::Log,
            low: 10f64.powi(first),
            high: 10f64.powi(last),
            ticks: ticks.collect(),
        }
    }

    /// Logarithmic from `unit` on, with a place for zero, up to the last of the named places.
    pub(crate) fn log_from_zero(label: &str, unit: f64, ticks: Vec<(f64, String)>) -> Self {
        let high = ticks.iter().map(|(value, _)| *value).fold(unit, f64::max);
        Self { label: label.to_owned(), scale: Scale::LogFromZero { unit }, low: 0.0, high, ticks }
    }

    /// Where a number lies: 0 at the low end, 1 at the high end, never beyond.
    pub(super) fn share(&self, value: f64) -> f64 {
        let (low, high) = (self.scale.place(self.low), self.scale.place(self.high));
        let place = self.scale.place(value.max(self.low));
        ((place - low) / (high - low).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0)
    }
}

/// The next of 1, 2, 4, 5 and 8 times a power of ten: the quarters of an axis that ends there are round.
pub(crate) fn nice(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 4.0, 5.0, 8.0, 10.0];
    steps.map(|step| step * power).into_iter().find(|&step| step >= value).unwrap_or(10.0 * power)
}

/// A number on an axis.
pub(crate) fn number(value: f64) -> String {
    if value >= 10.0 || value == value.trunc() { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers_that_hold_everything() {
        for (value, end) in [(0.0, 1.0), (1.0, 1.0), (3.1, 4.0), (41.0, 50.0), (99.0, 100.0), (0.07, 0.08)] {
            assert!((nice(value) - end).abs() < 1e-9, "{value}: {}", nice(value));
        }
    }

    #[test]
    fn logarithmic_axes_give_every_decade_the_same_room() {
        let axis = Axis::log("bytes", 250.0, 80_000.0, number);
        let names: Vec<&str> = axis.ticks.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["100", "1000", "10000", "100000"]);
        for (value, share) in [(100.0, 0.0), (1_000.0, 1.0 / 3.0), (1e5, 1.0), (0.0, 0.0), (1e9, 1.0)] {
            assert!((axis.share(value) - share).abs() < 1e-9, "{value}");
        }
        let from_zero = Axis::log_from_zero("delay", 10.0, vec![(0.0, "0".into()), (990.0, "990".into())]);
        for (value, share) in [(0.0, 0.0), (90.0, 0.5), (990.0, 1.0)] {
            assert!((from_zero.share(value) - share).abs() < 1e-9, "{value}");
        }
    }

    #[test]
    fn an_axis_over_nothing_still_has_two_ends() {
        let axis = Axis::log("bytes", 0.0, 0.0, number);
        assert!(axis.ticks.len() >= 2 && axis.share(0.0) == 0.0);
        assert!(Axis::linear("n", 0.0, number).share(0.0) == 0.0);
    }
}
