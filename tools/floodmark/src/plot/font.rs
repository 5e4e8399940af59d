//! The built-in font: how wide a text is, and the outlines of its letters. See font/SOURCE.md.

use tiny_skia::PathBuilder;
use ttf_parser::{Face, OutlineBuilder};

static ROBOTO: &[u8] = include_bytes!("font/roboto-latin.ttf");

/// The font, ready to draw with.
pub(super) struct Font(Face<'static>);

impl Font {
    /// The one that is built in.
    pub(super) fn built_in() -> Result<Self, String> {
        Face::parse(ROBOTO, 0).map(Self).map_err(|error| format!("the built-in font cannot be read: {error}"))
    }

    /// Pixels from the start of a text to its end.
    pub(super) fn width(&self, text: &str, size: f64) -> f64 {
        text.chars().map(|letter| f64::from(self.advance(letter))).sum::<f64>() * self.scale(size)
    }

    /// Adds the outlines of a text that starts at (`x`, `y`) on its base line.
    pub(super) fn outline(&self, text: &str, size: f64, (x, y): (f64, f64), path: &mut PathBuilder) {
        let scale = self.scale(size);
        let mut pen = Pen { path, x: x as f32, y: y as f32, scale: scale as f32 };
        for letter in text.chars() {
            if let Some(glyph) = self.0.glyph_index(letter) {
                // A letter without an outline, such as a space, draws nothing.
                let _ = self.0.outline_glyph(glyph, &mut pen);
            }
            pen.x += (f64::from(self.advance(letter)) * scale) as f32;
        }
    }

    fn advance(&self, letter: char) -> u16 {
        let glyph = self.0.glyph_index(letter).unwrap_or_default();
        self.0.glyph_hor_advance(glyph).unwrap_or(0)
    }

    fn scale(&self, size: f64) -> f64 {
        size / f64::from(self.0.units_per_em())
    }
}

/// Puts letters, whose up is a larger number, into a picture, whose up is a smaller one.
struct Pen<'a> {
    path: &'a mut PathBuilder,
    x: f32,
    y: f32,
    scale: f32,
}

impl Pen<'_> {
    fn at(&self, x: f32, y: f32) -> (f32, f32) {
        (self.x + x * self.scale, self.y - y * self.scale)
    }
}

impl OutlineBuilder for Pen<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.at(x1, y1), self.at(x, y));
        self.path.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2), (x, y)) = (self.at(x1, y1), self.at(x2, y2), self.at(x, y));
        self.path.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}
