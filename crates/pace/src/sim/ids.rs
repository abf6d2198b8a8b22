//! Lists of ids as people write them: `0-15`, `3`, `0-7,16-23`.

use crate::config::Error;

/// The ids of `text`, in the order written.
pub(super) fn parse(text: &str, limit: u32, what: &str) -> Result<Vec<u32>, Error> {
    let bad = |part: &str, why: &str| Error(format!("{what} = {text:?}: {part:?} {why}"));
    let mut ids = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number =
            |s: &str| s.trim().parse::<u32>().map_err(|_| bad(part, "is not a number or a range such as 0-15"));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(bad(part, "runs backwards"));
        }
        if last >= limit {
            return Err(bad(part, &format!("is out of range: there are {limit}, counted from 0")));
        }
        ids.extend(first..=last);
    }
    Ok(ids)
}
