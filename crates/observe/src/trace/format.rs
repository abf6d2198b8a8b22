//! The layout of a tracepoint's records, from its `format` file in tracefs, and the block layer's events in it.

use super::pairs::{Event, Step, Way};

/// The places of the fields that matter, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// The number by which perf_event_open(2) knows the tracepoint.
    pub number: u64,
    device: Field<4>,
    sector: Field<8>,
    sectors: Field<4>,
    kind: (usize, usize),
}

/// The place of a number of N bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field<const N: usize>(usize);

impl<const N: usize> Field<N> {
    fn of(text: &str, name: &str) -> Option<Field<N>> {
        place(text, name).filter(|(_, size)| *size == N).map(|(offset, _)| Field(offset))
    }

    fn read(self, raw: &[u8]) -> Option<&[u8; N]> {
        raw.get(self.0..)?.first_chunk()
    }
}

/// Offset and size of a field: a line such as `field:dev_t dev; offset:8; size:4; signed:0;`.
fn place(text: &str, name: &str) -> Option<(usize, usize)> {
    text.lines().find_map(|line| {
        let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
        let declared = parts.next()?.rsplit(' ').next()?;
        if declared.split('[').next() != Some(name) {
            return None;
        }
        let mut number = |prefix: &str| parts.next()?.strip_prefix(prefix)?.parse().ok();
        Some((number("offset:")?, number("size:")?))
    })
}

impl Format {
    /// The layout that a format file describes; None if it lacks a field, or has one of another size.
    pub fn parse(text: &str) -> Option<Format> {
        Some(Format {
            number: text.lines().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok()?,
            device: Field::of(text, "dev")?,
            sector: Field::of(text, "sector")?,
            sectors: Field::of(text, "nr_sector")?,
            kind: place(text, "rwbs")?,
        })
    }

    /// The event in a record; None for commands that a program sends to the device itself, and for a record that is
    /// too short.
    pub fn event(&self, step: Step, at_ns: u64, raw: &[u8]) -> Option<Event> {
        let (offset, size) = self.kind;
        let way = way(raw.get(offset..offset + size)?)?;
        let sector = u64::from_ne_bytes(*self.sector.read(raw)?);
        Some(Event {
            at_ns,
            step,
            device: u32::from_ne_bytes(*self.device.read(raw)?),
            // A flush has no sector: 0 when it is issued, and the largest number when it completes.
            sector: if sector == u64::MAX { 0 } else { sector },
            sectors: u32::from_ne_bytes(*self.sectors.read(raw)?),
            way,
        })
    }
}

/// The direction of a request by its letters (blk_fill_rwbs() in kernel/trace/blktrace.c): F for a flush before it,
/// then the kind, then its flags. None for appends to a zone: they have one sector when they are issued and another one
/// when they complete.
fn way(letters: &[u8]) -> Option<Way> {
    match letters {
        [b'F', b'W', ..] | [b'W', ..] => Some(Way::Write),
        [b'F', b'R', ..] | [b'R', ..] => Some(Way::Read),
        [b'F', ..] | [b'D', ..] => Some(Way::Other),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// block_rq_complete of Linux 6.18, and block_rq_issue of Linux 6.12 (Debian 13).
    const COMPLETE: &str = include_str!("../../tests/golden/block_rq_complete.format");
    const ISSUE: &str = include_str!("../../tests/golden/block_rq_issue.format");

    fn record(format: &Format, device: u32, sector: u64, sectors: u32, kind: &[u8]) -> Vec<u8> {
        let mut raw = vec![0; 64];
        raw[format.device.0..][..4].copy_from_slice(&device.to_ne_bytes());
        raw[format.sector.0..][..8].copy_from_slice(&sector.to_ne_bytes());
        raw[format.sectors.0..][..4].copy_from_slice(&sectors.to_ne_bytes());
        raw[format.kind.0..][..kind.len()].copy_from_slice(kind);
        raw
    }

    #[test]
    fn the_formats_of_linux_are_understood() {
        let complete = Format::parse(COMPLETE).unwrap();
        let places = (complete.device.0, complete.sector.0, complete.sectors.0, complete.kind);
        assert_eq!((complete.number, places), (2107, (8, 16, 24, (34, 10))));
        let issue = Format::parse(ISSUE).unwrap();
        assert_eq!((issue.number, issue.sectors.0, issue.kind), (1170, 24, (34, 8)));
    }

    #[test]
    fn a_format_that_lacks_a_field_or_has_another_is_refused() {
        assert_eq!(Format::parse(""), None);
        assert_eq!(Format::parse(&COMPLETE.replace("nr_sector", "bytes")), None);
        assert_eq!(
            Format::parse(&COMPLETE.replace("sector;\toffset:16;\tsize:8", "sector;\toffset:16;\tsize:4")),
            None
        );
    }

    #[test]
    fn a_record_becomes_an_event() {
        let format = Format::parse(COMPLETE).unwrap();
        let raw = record(&format, 8 << 20 | 16, 2048, 8, b"RAM\0");
        let event = format.event(Step::Complete, 5, &raw).unwrap();
        assert_eq!((event.device, event.sector, event.sectors, event.way), (8 << 20 | 16, 2048, 8, Way::Read));
        assert_eq!(format.event(Step::Complete, 5, &raw[..30]), None, "too short");
        let flush = record(&format, 1, u64::MAX, 0, b"FF\0");
        assert_eq!(
            format.event(Step::Complete, 5, &flush).map(|event| (event.sector, event.way)),
            Some((0, Way::Other))
        );
    }

    #[test]
    fn directions_are_told_by_the_letters_of_blktrace() {
        for (letters, expected) in [
            ("R", Some(Way::Read)),
            ("RAM", Some(Way::Read)),
            ("WFS", Some(Way::Write)),
            ("FWFS", Some(Way::Write)),
            ("ZAS", None),
            ("DS", Some(Way::Other)),
            ("FF", Some(Way::Other)),
            ("N", None),
            ("ZR", None),
            ("", None),
        ] {
            assert_eq!(way(letters.as_bytes()), expected, "{letters}");
        }
    }
}
