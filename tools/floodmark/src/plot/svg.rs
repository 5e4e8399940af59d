//! A scene as SVG text. Words stay words, so that they can be searched and read aloud.

use std::fmt::Write as _;

use super::scene::{Anchor, Colour, DASHES, Scene, Shape, rim};

/// The whole file.
pub(super) fn text(scene: &Scene) -> String {
    let (width, height) = (scene.width, scene.height);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" font-family=\"Roboto, Helvetica, Arial, sans-serif\">\n\
         <title>{}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
        escape(&scene.title)
    );
    for shape in &scene.shapes {
        // Writing to a string does not fail.
        let _ = match shape {
            Shape::Path { points, stroke } => {
                let dashes = if stroke.dashed {
                    format!(" stroke-dasharray=\"{} {}\"", DASHES.0, DASHES.1)
                } else {
                    String::new()
                };
                let places: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
                writeln!(
                    svg,
                    "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"{dashes}/>",
                    places.join(" "),
                    hex(stroke.colour),
                    stroke.width
                )
            }
            Shape::Disc { centre, radius, fill } => writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\" fill=\"{}\" stroke=\"#ffffff\" stroke-width=\"{}\"/>",
                centre.0,
                centre.1,
                hex(*fill),
                rim(*radius)
            ),
            Shape::Text { at, anchor, size, colour, upwards, text } => {
                let (x, y) = at;
                let turned = if *upwards {
                    format!(" transform=\"rotate(-90 {x:.1} {y:.1})\"")
                } else {
                    String::new()
                };
                writeln!(
                    svg,
                    "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{}\" text-anchor=\"{}\"{turned}>{}</text>",
                    hex(*colour),
                    anchor_name(*anchor),
                    escape(text)
                )
            }
        };
    }
    svg + "</svg>\n"
}

const fn anchor_name(anchor: Anchor) -> &'static str {
    match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    }
}

fn hex(Colour(red, green, blue): Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Text that means nothing to a browser.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && c != '\n' => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}
