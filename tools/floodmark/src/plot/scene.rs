//! A drawing as a list of plain shapes, in units of one CSS pixel from the upper left corner.

/// Red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Colour(pub(super) u8, pub(super) u8, pub(super) u8);

/// Which end of a text its place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A stroke of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stroke {
    pub(super) colour: Colour,
    pub(super) width: f64,
    pub(super) dashed: bool,
}

/// One thing to draw.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    /// Straight lines from point to point.
    Path {
        points: Vec<(f64, f64)>,
        stroke: Stroke,
    },
    /// A filled disc; a larger one has a thin white rim, so that those below can be seen.
    Disc {
        centre: (f64, f64),
        radius: f64,
        fill: Colour,
    },
    Text {
        at: (f64, f64),
        anchor: Anchor,
        size: f64,
        colour: Colour,
        upwards: bool,
        text: String,
    },
}

/// A drawing on white paper.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scene {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) title: String,
    pub(super) shapes: Vec<Shape>,
}

/// Width of the white rim of a disc of this radius.
pub(super) fn rim(radius: f64) -> f64 {
    if radius < 2.5 { 0.0 } else { 0.8 }
}

/// Lengths of dashes and of the gaps between.
pub(super) const DASHES: (f64, f64) = (5.0, 4.0);
