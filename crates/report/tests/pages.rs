//! Every kind of page of results in a real browser: nothing overlaps, nothing is clipped, text can be read, and nothing
//! is asked of the network.

mod browser;
mod sample;

use measure::schema::Document;
use report::html::{NamedDocument, render};

fn named(name: &str, document: Document) -> NamedDocument {
    NamedDocument { name: name.into(), document }
}

#[test]
fn pages_can_be_read_at_every_width_in_light_and_dark() {
    let sweep = || named("nvme.json", Document::Sweep(sample::sweep()));
    let run = || named("nightly.json", Document::Run(sample::run()));
    let files = |name: &str| named(name, Document::Files(sample::files()));
    let mut one = sample::sweep();
    one.curves.truncate(1);
    let fio = report::read_document(include_bytes!("fio-3.33/json.json")).unwrap();
    browser::look_at(&[
        ("sweep", render(&[named("nvme.json", Document::Sweep(one))])),
        ("engines", render(&[sweep()])),
        ("map", render(&[named("map.json", Document::Sweep(sample::map()))])),
        ("run", render(&[run()])),
        ("hosts", render(&[named("cluster.json", Document::Run(sample::hosts()))])),
        ("fio", render(&[named("fio.json", fio)])),
        ("comparison", render(&[named("ab.json", Document::Comparison(sample::comparison()))])),
        ("ratios", render(&[named("ab.json", Document::Comparison(sample::far_apart()))])),
        ("files", render(&[files("fuse.json")])),
        ("many", render(&[sweep(), run(), named("weekly.json", Document::Run(sample::run())), files("fuse.json")])),
    ]);
}
