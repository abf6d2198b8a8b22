//! A chart in a file of its own, for slides, papers and tickets: it looks the same in every program and on every paper.

use super::{Chart, heat::Heat, rows::Rows};

/// The width of a chart that stands alone.
const WIDTH: f64 = 640.0;

/// A chart that needs no page around it.
#[derive(Clone, Debug)]
pub struct Picture {
    title: String,
    svg: String,
}

impl From<&Chart> for Picture {
    fn from(chart: &Chart) -> Picture {
        // Nothing points at a picture, so it has no tooltips.
        Picture { title: chart.title.clone(), svg: chart.clone().without_tooltips().svg() }
    }
}

impl From<&Rows> for Picture {
    fn from(rows: &Rows) -> Picture {
        Picture { title: rows.title.clone(), svg: rows.svg(WIDTH) }
    }
}

impl From<&Heat> for Picture {
    fn from(heat: &Heat) -> Picture {
        Picture { title: heat.title.clone(), svg: heat.svg(WIDTH) }
    }
}

impl Picture {
    /// The picture under another title than that of the chart, where two charts of a page have the same.
    pub(crate) fn titled(self, title: &str) -> Picture {
        Picture { title: title.into(), ..self }
    }

    /// The name of the picture among those of a result, from its title: `iops`, `latency-p99`.
    pub fn name(&self) -> String {
        let words = self.title.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '.'));
        words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect::<Vec<_>>().join("-")
    }

    /// The text of an SVG file: light colours on white, as literal values, because programs that draw SVG know neither
    /// custom properties nor the reader's setting.
    pub fn svg(&self) -> String {
        let (_, colours) = include_str!("colours.css").split_once('{').expect("the light colours come first");
        let (colours, _) = colours.split_once('}').expect("a rule ends");
        let values = colours.split(';').filter_map(|one| one.trim().split_once(": "));
        let style = values.fold(include_str!("rules.css").to_string(), |style, (name, value)| {
            style.replace(&format!("var({name})"), value)
        });
        let (begin, rest) = self.svg.split_once("</desc>").expect("every chart has a description");
        let view = begin.split("viewBox=\"0 0 ").nth(1).and_then(|rest| rest.split('"').next());
        let (width, height) = view.and_then(|size| size.split_once(' ')).expect("every chart has a size");
        let begin = begin.replacen("<svg ", &format!("<svg width=\"{width}\" height=\"{height}\" "), 1);
        format!(
            "{begin}</desc><style>{style}</style><rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>{rest}\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::{Axis, Series};

    #[test]
    fn a_picture_needs_nothing_around_it() {
        let chart = Chart::new("Latency, p99 <us>")
            .x(Axis::log2("iodepth"))
            .series(Series::line("a", vec![(1.0, 1.0), (2.0, 2.0)]));
        let picture = Picture::from(&chart);
        assert_eq!(picture.name(), "latency-p99-us");
        let svg = picture.svg();
        assert!(svg.starts_with("<svg width=\"640\" height=\"320\" class=\"chart\""), "{svg}");
        assert!(!svg.contains("var(") && !svg.contains("@media") && svg.contains("#1d5fa8"), "{svg}");
        assert!(svg.ends_with("</svg>\n") && svg.matches("<style>").count() == 1);
    }
}
