//! The memory that the commands in progress name: a command's data go there, and nowhere else.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use nvme::spec::rdma::{KeyedSgl, RdmaData};
use nvme::spec::{Command, Sgl};

use crate::connection::Breach;

/// The ranges of the host's memory, by the identifiers of their commands. A command is in progress until its response
/// is queued.
#[derive(Default)]
pub(super) struct Named(HashMap<u16, KeyedSgl>);

impl Named {
    /// Notes the range of a command that has come. Descriptors that the transport does not have are for
    /// [`Transport::place_of_data`](crate::transport::Transport::place_of_data) to refuse.
    ///
    /// # Errors
    /// The host uses the identifier of a command in progress, so that nobody could tell the ranges of the two apart.
    #[inline]
    pub fn note(&mut self, command: &Command) -> Result<(), Breach> {
        // The host has memory for no data: this command's identifier names nothing.
        let Some(range) = range(&command.sgl).filter(|range| range.length > 0) else { return Ok(()) };
        match self.0.entry(command.cid) {
            Entry::Occupied(_) => Err(Breach::IdentifierInUse { cid: command.cid }),
            Entry::Vacant(free) => {
                free.insert(range);
                Ok(())
            }
        }
    }

    /// The first `length` bytes of the range of a command in progress; `None` if the range is shorter.
    #[inline]
    pub fn first(&self, cid: u16, length: u32) -> Option<KeyedSgl> {
        self.0.get(&cid).filter(|range| range.length >= length).copied()
    }

    /// Ends a command. Returns the key that the response invalidates.
    #[inline]
    pub fn end(&mut self, cid: u16) -> Option<u32> {
        self.0.remove(&cid).filter(|range| range.invalidate).map(|range| range.key)
    }

    pub fn memory(&self) -> usize {
        self.0.len() * size_of::<(u16, KeyedSgl)>()
    }
}

fn range(sgl: &Sgl) -> Option<KeyedSgl> {
    match RdmaData::of(sgl) {
        Ok(RdmaData::Remote(range)) => Some(range),
        Ok(RdmaData::InCapsule { .. }) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_its_commands_until_the_response() {
        let range = KeyedSgl { address: 4096, length: 512, key: 7, invalidate: true };
        let of = |cid: u16, range: KeyedSgl| Command { cid, sgl: range.descriptor(), ..Command::default() };
        let mut named = Named::default();
        named.note(&of(1, range)).unwrap();
        assert_eq!(named.note(&of(1, range)), Err(Breach::IdentifierInUse { cid: 1 }));
        assert_eq!((named.first(1, 512), named.first(1, 513), named.first(2, 1)), (Some(range), None, None));
        assert_eq!((named.end(1), named.end(1)), (Some(7), None));
        named.note(&of(1, KeyedSgl { invalidate: false, ..range })).unwrap();
        assert_eq!(named.end(1), None);
        // Without data there is nothing to mix up: requests for events come again after a reset.
        let none = KeyedSgl { length: 0, ..range };
        assert_eq!((named.note(&of(3, none)), named.note(&of(3, none))), (Ok(()), Ok(())));
        let inside = Command { cid: 4, sgl: Sgl::in_capsule(512), ..Command::default() };
        assert_eq!((named.note(&inside), named.note(&inside), named.first(4, 1)), (Ok(()), Ok(()), None));
    }
}
