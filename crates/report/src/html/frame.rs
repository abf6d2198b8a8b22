//! The frame of every page: the head with the mark, the styles, the foot. Reports and the simulator's page share it.

use crate::svg::{self, Chart, escape};

/// Plimsoll's mark: the disc with the line through it.
const MARK: &str = r#"<svg viewBox="0 0 40 40" aria-hidden="true"><circle cx="20" cy="20" r="11" fill="none" stroke="currentColor" stroke-width="3.4"/><path d="M3 20h34" stroke="currentColor" stroke-width="3.4" stroke-linecap="round"/></svg>"#;

/// The parts of a page around its body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame<'a> {
    /// The title of the window.
    pub title: &'a str,
    /// The kind of the page: `sweep`, `simulation`.
    pub kind: &'a str,
    /// One sentence that says it all; empty if there is none.
    pub headline: &'a str,
    /// The origin of the figures, as HTML.
    pub about: &'a str,
}

impl Frame<'_> {
    /// The page: no script, nothing from the network, light and dark as the reader's system.
    pub fn around(&self, body: &str) -> String {
        let Frame { title, kind, headline, about } = self;
        let headline = match *headline {
            "" => String::new(),
            headline => {
                let long = if headline.chars().count() > 120 { " long" } else { "" };
                format!("<h1 class=\"advice{long}\">{}</h1>", unbroken(headline))
            }
        };
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <title>{} - Plimsoll</title><style>\n{}{}</style></head>\n<body><header><div class=\"wide\">\
             <div class=\"brand\">{MARK}<b>Plimsoll</b><span>{kind}</span></div>{headline}<p class=\"about\">{about}</p></div></header>\n\
             <main><div class=\"wide\">{body}</div></main>\n\
             <footer><div class=\"wide\">Made by Plimsoll {}. Bands and intervals are 95 % confidence intervals. \
             Sizes are in powers of 1024, counts in powers of 1000.</div></footer></body></html>\n",
            escape(title),
            svg::STYLE,
            include_str!("style.css"),
            env!("CARGO_PKG_VERSION"),
        )
    }
}

/// Text as HTML whose words with a hyphen break only where a line has no room for them: an option such as `--iodepth`
/// does not break after its hyphens, and can be copied.
pub(super) fn unbroken(text: &str) -> String {
    let word = |word: &str| match word.contains('-') {
        true => format!("<span class=\"word\">{}</span>", escape(word)),
        false => escape(word),
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// The widths that charts are drawn for: beside each other on a screen, and on a telephone.
const BROAD: f64 = 640.0;
const NARROW: f64 = 360.0;

/// A drawing twice, for wide and for narrow screens: text keeps its size, and the style shows one of the two.
pub(super) fn wide_and_narrow(draw: impl Fn(f64) -> String) -> String {
    format!("<div class=\"broad\">{}</div><div class=\"narrow\">{}</div>", draw(BROAD), draw(NARROW))
}

/// A chart for wide and for narrow screens.
pub(super) fn drawn(chart: Chart) -> String {
    wide_and_narrow(|width| match width < BROAD {
        true => chart.clone().size(width, 300.0).without_tooltips().svg(),
        false => chart.svg(),
    })
}

/// Drawings side by side, as many as fit; nothing without drawings.
pub(super) fn grid(drawings: impl IntoIterator<Item = String>) -> String {
    let cards: String = drawings.into_iter().map(|drawing| format!("<div class=\"card\">{drawing}</div>")).collect();
    if cards.is_empty() { cards } else { format!("<div class=\"charts\">{cards}</div>") }
}

/// Charts side by side, as many as fit; nothing without charts.
pub fn cards(charts: impl IntoIterator<Item = Chart>) -> String {
    grid(charts.into_iter().map(drawn))
}

/// Contents below a heading that opens and closes them. The heading is escaped, the contents are HTML.
pub fn folded(heading: &str, open: bool, contents: &str) -> String {
    let open = if open { " open" } else { "" };
    format!("<details class=\"part\"{open}><summary>{}</summary>{contents}</details>", escape(heading))
}
