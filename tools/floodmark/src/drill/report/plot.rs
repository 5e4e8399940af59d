//! Plots as SVG text: a dot for each kill, over its number, with a line for the median. Knows numbers and words only.

use std::fmt::Write as _;

use crate::plot::{escape, nice, number};

/// Size of the drawing; it scales with the page.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 240.0;
/// Room for the words at the left, the bottom, the top and the right.
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 34.0;
const TOP: f64 = 14.0;
const RIGHT: f64 = 14.0;
/// More dots are not drawn one by one: of each bundle, the highest.
const DOTS_MAX: usize = 2_000;

/// A number to be drawn, what is said about it, and its colour.
#[derive(Clone, Debug)]
pub(super) struct Dot {
    pub(super) value: f64,
    /// Shown when pointed at.
    pub(super) title: String,
    /// Its class: `random`, `point` or `bad`.
    pub(super) class: &'static str,
}

/// Dots from left to right in their order. `unit` is said beside the axis.
pub(super) fn dots(name: &str, unit: &str, dots: &[Dot], median: Option<f64>) -> String {
    let bundle = dots.len().div_ceil(DOTS_MAX).max(1);
    let highest = |dots: &[Dot]| dots.iter().max_by(|a, b| a.value.total_cmp(&b.value)).cloned();
    let drawn: Vec<Dot> = dots.chunks(bundle).filter_map(highest).collect();
    let top = nice(drawn.iter().map(|dot| dot.value).fold(0.0, f64::max));
    let y = |value: f64| HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (value / top).clamp(0.0, 1.0);
    let step = (WIDTH - LEFT - RIGHT) / drawn.len().max(1) as f64;
    let x = |index: usize| LEFT + step * (index as f64 + 0.5);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n<title>{}</title>\n",
        escape(name),
        escape(name)
    );
    for quarter in 0..=4 {
        let value = top * f64::from(quarter) / 4.0;
        // Writing to a string does not fail.
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{:.1}\" y2=\"{:.1}\"/><text x=\"{}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            y(value),
            y(value),
            LEFT - 6.0,
            y(value) + 4.0,
            number(value)
        );
    }
    if let Some(median) = median {
        let _ = writeln!(
            svg,
            "<line class=\"median\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{:.1}\" y2=\"{:.1}\"><title>median {} {}</title></line>",
            WIDTH - RIGHT,
            y(median),
            y(median),
            number(median),
            escape(unit)
        );
    }
    for (index, dot) in drawn.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<circle class=\"{}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"><title>{}</title></circle>",
            dot.class,
            x(index),
            y(dot.value),
            escape(&dot.title)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">kills, in order</text><text x=\"4\" y=\"{}\">{}</text>\n</svg>",
        WIDTH - RIGHT,
        HEIGHT - 8.0,
        HEIGHT - 8.0,
        escape(unit)
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dot(value: f64) -> Dot {
        Dot { value, title: format!("<{value}>"), class: "random" }
    }

    #[test]
    fn every_dot_is_inside_the_drawing_and_the_highest_is_on_top() {
        let svg = dots("time & place", "ms", &[dot(10.0), dot(0.0), dot(7.5)], Some(7.5));
        let heights: Vec<f64> =
            svg.split("cy=\"").skip(1).filter_map(|rest| rest.split('"').next()?.parse().ok()).collect();
        assert_eq!(heights, [TOP, HEIGHT - BOTTOM, TOP + (HEIGHT - BOTTOM - TOP) / 4.0]);
        assert!(
            svg.contains("&lt;10&gt;")
                && svg.contains("time &amp; place")
                && svg.contains("class=\"median\"")
        );
    }

    #[test]
    fn very_many_dots_are_bundled_and_none_is_no_error() {
        let many: Vec<Dot> = (0..9_999).map(|index| dot(f64::from(index))).collect();
        let svg = dots("n", "ms", &many, None);
        assert!(svg.matches("<circle").count() <= DOTS_MAX && svg.contains("&lt;9998&gt;"));
        assert_eq!(dots("n", "ms", &[], None).matches("<circle").count(), 0);
    }
}
