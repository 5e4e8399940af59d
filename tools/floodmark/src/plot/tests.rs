//! A small figure in both forms.

use super::*;

fn figure() -> Figure {
    let x = Axis::log_from_zero(
        "delay",
        60.0,
        vec![(0.0, "0".into()), (60.0, "1m".into()), (3_600.0, "1h".into())],
    );
    let series = |marks, points: &[(f64, f64)]| Series { index: 0, marks, points: points.to_vec() };
    let panel = Panel {
        title: "a & b".to_owned(),
        x,
        y: Axis::log("panes", 10.0, 9_000.0, number),
        series: vec![
            series(Marks::Points, &[(0.0, 10.0), (3_600.0, 10_000.0)]),
            series(Marks::Line, &[(0.0, 10.0), (60.0, 100.0), (3_600.0, 10_000.0)]),
        ],
    };
    Figure {
        title: "State <size>".to_owned(),
        notes: vec!["one note".to_owned()],
        legend: vec!["none".to_owned()],
        marks: vec![(Marks::Points, None, "measured".to_owned()), (Marks::Line, Some(2), "model".to_owned())],
        rows: vec![vec![panel.clone(), panel]],
    }
}

#[test]
fn the_svg_has_every_point_line_and_word_and_nothing_a_browser_could_misread() {
    let svg = figure().to_svg();
    // Two points a panel, one sample of the legend's colours and one of its marks.
    assert_eq!(svg.matches("<circle").count(), 6);
    for word in ["State &lt;size&gt;", "a &amp; b", ">1h<", ">10000<", ">measured<", ">delay<", "rotate(-90"]
    {
        assert!(svg.contains(word), "{word}");
    }
    // The first point lies in the lower left corner of the axes, the last in the upper right one.
    let places: Vec<f64> =
        svg.split("cy=\"").skip(3).take(2).filter_map(|rest| rest.split('"').next()?.parse().ok()).collect();
    assert!((places[0] - places[1] - 190.0).abs() < 0.11, "{places:?}");
}

#[test]
fn the_png_is_an_image_of_twice_the_size_with_colour_and_words_in_it() {
    let png = figure().to_png().expect("drawn");
    let image = tiny_skia::Pixmap::decode_png(&png).expect("an image");
    assert_eq!(image.width(), 2 * (28 + 2 * 396));
    let drawn = image.pixels().iter().filter(|pixel| pixel.red() != 255 || pixel.blue() != 255).count();
    let blue = image.pixels().iter().filter(|pixel| pixel.blue() > 150 && pixel.red() < 20).count();
    assert!(blue > 100 && drawn > 10_000, "{blue} {drawn}");
    // Without letters the figure would have less ink.
    let mut silent = figure();
    silent.title = String::new();
    let silent = tiny_skia::Pixmap::decode_png(&silent.to_png().expect("drawn")).expect("an image");
    let title = |image: &tiny_skia::Pixmap| {
        let row = image.width() as usize * 70;
        image.pixels()[..row].iter().filter(|pixel| pixel.red() < 128).count()
    };
    assert!(title(&image) > 200 && title(&silent) == 0, "{} {}", title(&image), title(&silent));
}

#[test]
fn a_figure_too_large_for_an_image_is_refused_with_a_remedy() {
    let mut large = figure();
    let row = large.rows[0].clone();
    large.rows = vec![row; 2_000];
    let error = large.to_png().expect_err("too large");
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("less")), "{error}");
}
