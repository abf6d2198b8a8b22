//! The link that carries messages between ranks.

/// A link to all other ranks. Messages between two ranks arrive whole and in order, or not at all.
///
/// Nothing here waits, and nothing fails: a rank that is lost takes no more messages, and that is found out by its
/// silence (see [`crate::member`]).
pub trait Link {
    /// The number of this rank: 0 is the leader.
    fn rank(&self) -> u32;
    /// The number of ranks of the run.
    fn size(&self) -> u32;
    /// Hands over a message for the rank `to`.
    fn send(&mut self, to: u32, bytes: Vec<u8>);
    /// The next message and who sent it, if one is there.
    fn receive(&mut self) -> Option<(u32, Vec<u8>)>;
    /// Ends the link in good order. All ranks do it together: never with a lost one.
    fn close(&mut self);
}
