//! Places a figure's panels, axes, marks and words.

use super::scene::{Anchor, Colour, Scene, Shape, Stroke};
use super::{Axis, Figure, Marks, Panel};

/// Size of the place between the axes of a panel.
const PLOT_WIDTH: f64 = 300.0;
const PLOT_HEIGHT: f64 = 190.0;
/// Room around it: for names of ticks and axes at the left and below, for the title above.
const LEFT: f64 = 78.0;
const RIGHT: f64 = 18.0;
const ABOVE: f64 = 34.0;
const BELOW: f64 = 48.0;
/// Space around everything.
const EDGE: f64 = 14.0;
const TITLE_SIZE: f64 = 19.0;
const NOTE_SIZE: f64 = 12.5;
const NAME_SIZE: f64 = 13.5;
const TICK_SIZE: f64 = 11.0;
/// About the width of a letter, as a share of its size.
const LETTER: f64 = 0.5;
/// Length of a line in the legend.
const SAMPLE: f64 = 24.0;

const INK: Colour = Colour(0x22, 0x26, 0x2d);
const SOFT: Colour = Colour(0x5b, 0x63, 0x6e);
const GRID: Colour = Colour(0xe2, 0xe5, 0xe9);
/// Colours that can be told apart by most people (Okabe and Ito), in the order of the legend.
const COLOURS: [Colour; 6] = [
    Colour(0x00, 0x72, 0xb2),
    Colour(0xe6, 0x9f, 0x00),
    Colour(0x00, 0x9e, 0x73),
    Colour(0xd5, 0x5e, 0x00),
    Colour(0xcc, 0x79, 0xa7),
    Colour(0x56, 0xb4, 0xe9),
];

/// The whole figure.
pub(super) fn scene(figure: &Figure) -> Scene {
    let columns = figure.rows.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let width = 2.0 * EDGE + columns as f64 * (LEFT + PLOT_WIDTH + RIGHT);
    let mut shapes = Vec::new();
    let mut y = EDGE + TITLE_SIZE;
    shapes.push(words((EDGE, y), Anchor::Start, TITLE_SIZE, INK, &figure.title));
    for note in &figure.notes {
        y += NOTE_SIZE + 5.0;
        shapes.push(words((EDGE, y), Anchor::Start, NOTE_SIZE, SOFT, note));
    }
    y += NAME_SIZE + 12.0;
    legend(figure, y, &mut shapes);
    y += 12.0;
    for row in &figure.rows {
        for (column, panel) in row.iter().enumerate() {
            let left = EDGE + column as f64 * (LEFT + PLOT_WIDTH + RIGHT) + LEFT;
            Place { left, top: y + ABOVE }.draw(panel, &mut shapes);
        }
        y += ABOVE + PLOT_HEIGHT + BELOW;
    }
    Scene { width, height: y + EDGE, title: figure.title.clone(), shapes }
}

fn legend(figure: &Figure, y: f64, shapes: &mut Vec<Shape>) {
    let mut x = EDGE;
    let middle = y - NAME_SIZE * 0.35;
    for (index, name) in figure.legend.iter().enumerate() {
        shapes.push(Shape::Disc { centre: (x + 6.0, middle), radius: 5.5, fill: colour(index) });
        shapes.push(words((x + 17.0, y), Anchor::Start, NAME_SIZE, INK, name));
        x += 17.0 + length(name, NAME_SIZE) + 22.0;
    }
    x += 12.0;
    for (marks, index, name) in &figure.marks {
        let ink = index.map_or(SOFT, colour);
        match marks {
            Marks::Points => {
                shapes.push(Shape::Disc { centre: (x + SAMPLE / 2.0, middle), radius: 4.5, fill: SOFT })
            }
            Marks::Line | Marks::Dashes => shapes.push(Shape::Path {
                points: vec![(x, middle), (x + SAMPLE, middle)],
                stroke: Stroke { colour: ink, width: 1.8, dashed: *marks == Marks::Dashes },
            }),
        }
        shapes.push(words((x + SAMPLE + 6.0, y), Anchor::Start, NAME_SIZE, INK, name));
        x += SAMPLE + 6.0 + length(name, NAME_SIZE) + 22.0;
    }
}

/// Where a panel lies: the upper left corner between its axes.
struct Place {
    left: f64,
    top: f64,
}

impl Place {
    fn at(&self, panel: &Panel, (x, y): (f64, f64)) -> (f64, f64) {
        let (across, up) = (panel.x.share(x), panel.y.share(y));
        (self.left + PLOT_WIDTH * across, self.top + PLOT_HEIGHT * (1.0 - up))
    }

    fn draw(&self, panel: &Panel, shapes: &mut Vec<Shape>) {
        let (left, top) = (self.left, self.top);
        let (right, bottom) = (left + PLOT_WIDTH, top + PLOT_HEIGHT);
        shapes.push(words((left, top - 10.0), Anchor::Start, NAME_SIZE, INK, &panel.title));
        self.grid(&panel.x, &panel.y, shapes);
        let axes = vec![(left, top), (left, bottom), (right, bottom)];
        shapes.push(Shape::Path { points: axes, stroke: Stroke { colour: SOFT, width: 1.0, dashed: false } });
        let below = (f64::midpoint(left, right), bottom + 36.0);
        shapes.push(words(below, Anchor::Middle, NOTE_SIZE, SOFT, &panel.x.label));
        shapes.push(Shape::Text {
            at: (left - 62.0, f64::midpoint(top, bottom)),
            anchor: Anchor::Middle,
            size: NOTE_SIZE,
            colour: SOFT,
            upwards: true,
            text: panel.y.label.clone(),
        });
        for series in panel.series.iter().filter(|series| series.marks != Marks::Points) {
            let points = series.points.iter().map(|&point| self.at(panel, point)).collect();
            let dashed = series.marks == Marks::Dashes;
            let stroke = Stroke { colour: colour(series.index), width: 1.6, dashed };
            shapes.push(Shape::Path { points, stroke });
        }
        for series in panel.series.iter().filter(|series| series.marks == Marks::Points) {
            // Later series lie on top: they are smaller, so that the ones below can be seen.
            let radius = if series.points.len() > 60 { 1.8 } else { (5.6 - series.index as f64).max(2.6) };
            let discs = series.points.iter().map(|&point| Shape::Disc {
                centre: self.at(panel, point),
                radius,
                fill: colour(series.index),
            });
            shapes.extend(discs);
        }
    }

    fn grid(&self, x: &Axis, y: &Axis, shapes: &mut Vec<Shape>) {
        let (right, bottom) = (self.left + PLOT_WIDTH, self.top + PLOT_HEIGHT);
        let line =
            |points| Shape::Path { points, stroke: Stroke { colour: GRID, width: 1.0, dashed: false } };
        for (value, name) in &y.ticks {
            let at = self.top + PLOT_HEIGHT * (1.0 - y.share(*value));
            shapes.push(line(vec![(self.left, at), (right, at)]));
            shapes.push(words((self.left - 7.0, at + 3.8), Anchor::End, TICK_SIZE, SOFT, name));
        }
        let mut taken = f64::MIN;
        for (value, name) in &x.ticks {
            let at = self.left + PLOT_WIDTH * x.share(*value);
            shapes.push(line(vec![(at, self.top), (at, bottom)]));
            let half = length(name, TICK_SIZE) / 2.0;
            // A name that would run into the one before is left out; its line stays.
            if at - half > taken {
                shapes.push(words((at, bottom + 16.0), Anchor::Middle, TICK_SIZE, SOFT, name));
                taken = at + half + 3.0;
            }
        }
    }
}

fn words(at: (f64, f64), anchor: Anchor, size: f64, colour: Colour, text: &str) -> Shape {
    Shape::Text { at, anchor, size, colour, upwards: false, text: text.to_owned() }
}

/// About how long a text is.
fn length(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * LETTER
}

fn colour(index: usize) -> Colour {
    COLOURS[index % COLOURS.len()]
}
