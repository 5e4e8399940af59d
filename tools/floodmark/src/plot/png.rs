//! A scene as a PNG image.

use tiny_skia::{
    Color, FillRule, LineCap, LineJoin, Paint, PathBuilder, Pixmap, Stroke as SkiaStroke, StrokeDash,
    Transform,
};

use super::font::Font;
use super::scene::{Anchor, Colour, DASHES, Scene, Shape, Stroke, rim};

/// Pixels of the image for each unit of the scene.
const SCALE: f32 = 2.0;
/// Most pixels of an image: 256 MiB while it is drawn.
const PIXELS_MAX: u64 = 64 << 20;

/// The whole file, or why there is none.
pub(super) fn bytes(scene: &Scene) -> Result<Vec<u8>, String> {
    let pixels = |length: f64| (length * f64::from(SCALE)).ceil() as u32;
    let (width, height) = (pixels(scene.width), pixels(scene.height));
    let fits = u64::from(width) * u64::from(height) <= PIXELS_MAX;
    let image = if fits { Pixmap::new(width, height) } else { None };
    let mut image = image.ok_or_else(|| format!("no room for {width} x {height} pixels"))?;
    image.fill(Color::WHITE);
    let font = Font::built_in()?;
    for shape in &scene.shapes {
        match shape {
            Shape::Path { points, stroke } => draw_path(&mut image, points, stroke),
            Shape::Disc { centre, radius, fill } => draw_disc(&mut image, *centre, *radius, *fill),
            Shape::Text { at, anchor, size, colour, upwards, text } => {
                let width = font.width(text, *size);
                let start = match anchor {
                    Anchor::Start => 0.0,
                    Anchor::Middle => -width / 2.0,
                    Anchor::End => -width,
                };
                let mut path = PathBuilder::new();
                font.outline(text, *size, (start, 0.0), &mut path);
                let turned = if *upwards { Transform::from_rotate(-90.0) } else { Transform::identity() };
                let placed = turned.post_translate(at.0 as f32, at.1 as f32).post_scale(SCALE, SCALE);
                if let Some(path) = path.finish() {
                    image.fill_path(&path, &paint(*colour), FillRule::Winding, placed, None);
                }
            }
        }
    }
    image.encode_png().map_err(|error| error.to_string())
}

fn draw_path(image: &mut Pixmap, points: &[(f64, f64)], stroke: &Stroke) {
    let mut path = PathBuilder::new();
    for (index, &(x, y)) in points.iter().enumerate() {
        if index == 0 {
            path.move_to(x as f32, y as f32);
        } else {
            path.line_to(x as f32, y as f32);
        }
    }
    let dash =
        if stroke.dashed { StrokeDash::new(vec![DASHES.0 as f32, DASHES.1 as f32], 0.0) } else { None };
    let width = stroke.width as f32;
    let stroked = SkiaStroke {
        width,
        dash,
        line_cap: LineCap::Butt,
        line_join: LineJoin::Round,
        ..SkiaStroke::default()
    };
    // A path of a single point has no length, and draws nothing.
    if let Some(path) = path.finish() {
        image.stroke_path(&path, &paint(stroke.colour), &stroked, scaled(), None);
    }
}

fn draw_disc(image: &mut Pixmap, (x, y): (f64, f64), radius: f64, fill: Colour) {
    let Some(disc) = PathBuilder::from_circle(x as f32, y as f32, radius as f32) else { return };
    image.fill_path(&disc, &paint(fill), FillRule::Winding, scaled(), None);
    let width = rim(radius) as f32;
    if width <= 0.0 {
        return;
    }
    let rim = SkiaStroke { width, ..SkiaStroke::default() };
    image.stroke_path(&disc, &paint(Colour(255, 255, 255)), &rim, scaled(), None);
}

fn scaled() -> Transform {
    Transform::from_scale(SCALE, SCALE)
}

fn paint(Colour(red, green, blue): Colour) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color_rgba8(red, green, blue, 255);
    paint.anti_alias = true;
    paint
}
