//! Plots of measurements: a figure of panels, drawn once as a scene of plain shapes, and written as SVG and as PNG. Knows
//! numbers and words only; the font is built in, so that it draws on a machine without any.

mod axis;
mod font;
mod layout;
mod png;
mod scene;
mod svg;

pub(crate) use axis::{Axis, nice, number};
pub(crate) use svg::escape;

use std::path::Path;

use floodmark::error::{Error, ErrorKind};

/// Panels in rows and columns under a title, with one legend for all.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) title: String,
    /// Lines of small print below it.
    pub(crate) notes: Vec<String>,
    /// Names of the series, in the order of their colours.
    pub(crate) legend: Vec<String>,
    /// What points and lines are, with the place of their colour where they have one of their own.
    pub(crate) marks: Vec<(Marks, Option<usize>, String)>,
    pub(crate) rows: Vec<Vec<Panel>>,
}

/// One pair of axes with what is drawn between them.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

/// Numbers of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// Its place in the legend.
    pub(crate) index: usize,
    pub(crate) marks: Marks,
    pub(crate) points: Vec<(f64, f64)>,
}

/// How numbers are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marks {
    Points,
    Line,
    Dashes,
}

impl Figure {
    /// As SVG text.
    pub(crate) fn to_svg(&self) -> String {
        svg::text(&layout::scene(self))
    }

    /// As a PNG image, at twice the size in pixels.
    ///
    /// # Errors
    /// When the figure is too large to be an image.
    pub(crate) fn to_png(&self) -> Result<Vec<u8>, Error> {
        png::bytes(&layout::scene(self)).map_err(|message| {
            Error::new(ErrorKind::Invalid, format!("the plot cannot be drawn as PNG: {message}"))
                .with_remedy("plot less in one figure; the SVG is the same picture")
        })
    }

    /// Writes `NAME.svg` and `NAME.png` into a directory.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when the directory cannot be written.
    #[expect(
        clippy::disallowed_methods,
        reason = "a plot can be drawn again and need not survive a power cut"
    )]
    pub(crate) fn write(&self, dir: &Path, name: &str) -> Result<(), Error> {
        for (path, bytes) in [
            (dir.join(format!("{name}.svg")), self.to_svg().into_bytes()),
            (dir.join(format!("{name}.png")), self.to_png()?),
        ] {
            std::fs::write(&path, bytes).map_err(|error| {
                Error::new(ErrorKind::Unavailable, format!("cannot write: path={}", path.display()))
                    .with_remedy("free space, or choose another directory")
                    .with_source(error)
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
