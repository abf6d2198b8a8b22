//! The interface between a target and the authentication of its hosts: which hosts must prove themselves, and the
//! exchange of messages in which they do (NVMe Base 2.0, 8.13). The target only carries the messages.

/// Decides which hosts must authenticate. Called on a reactor: it must not block.
pub trait Authenticator: Send + Sync {
    /// The exchange that a queue must go through before any other command, or `None` if `host_nqn` need not on
    /// `subsystem_nqn`.
    fn begin(&self, host_nqn: &str, subsystem_nqn: &str, channel: Channel) -> Option<Box<dyn Exchange>>;
}

/// The connection of a queue, as far as an authentication depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// A plain connection, or one that a configured key of TLS secures.
    Usual,
    /// A plain connection on which the exchange has to make a key of TLS.
    Concatenating,
    /// A connection that such a key secures.
    OfGeneratedKey,
}

/// One queue's exchange of messages.
pub trait Exchange: Send {
    /// Takes the data of an Authentication Send. The answer to a message that is not understood is the one that
    /// [`Exchange::send`] returns next (a Failure1 message); false ends the connection.
    ///
    /// The target calls this method on a separate thread: long computations (Diffie-Hellman with 8192 bits: 10 ms)
    /// belong here.
    fn receive(&mut self, message: &[u8]) -> bool;

    /// The message for an Authentication Receive of at most `capacity` bytes; longer ones are an error of protocol.
    /// Called on a reactor: it must not take long.
    fn send(&mut self, capacity: usize) -> Vec<u8>;

    /// The state of the exchange.
    fn state(&self) -> ExchangeState;

    /// The means by which the host has proven itself; `None` before it has.
    fn proof(&self) -> Option<Means>;

    /// The reason for which the authentication has failed, for the log; `None` if it has not, or nobody knows.
    fn failure(&self) -> Option<String> {
        None
    }
}

/// The means by which a host has proven itself, by their names in SPDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    /// The hash function.
    pub hash: &'static str,
    /// The Diffie-Hellman group; `null` for none.
    pub group: &'static str,
}

/// The state of an authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeState {
    /// The exchange goes on: messages are still to come.
    Pending,
    /// The host has proven itself: other commands are taken now.
    Done,
    /// The authentication has failed: the target closes the connection once the message from [`Exchange::send`] is out.
    Failed,
}

/// An exchange that lets nobody in: it stands in for an exchange while that is being examined, and for an exchange that
/// cannot begin.
#[derive(Debug)]
pub struct Closed;

impl Exchange for Closed {
    fn receive(&mut self, _: &[u8]) -> bool {
        false
    }

    fn send(&mut self, _: usize) -> Vec<u8> {
        Vec::new()
    }

    fn state(&self) -> ExchangeState {
        ExchangeState::Failed
    }

    fn proof(&self) -> Option<Means> {
        None
    }
}
