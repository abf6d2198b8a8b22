//! The dialer of an association: makes its connections, over the transport that the address names, and keeps what they
//! share: the keys of TLS, or the memory that is registered for RDMA.

use std::sync::Arc;

use nvme::spec::Nqn;

use super::connection::Connection;
use super::rdma::{self, Registered};
use super::{Address, Error, Link, Options, Transport, tcp};

/// The keys of TLS that may open the subsystem, the likeliest first.
pub(super) struct Secrets {
    /// The keys; none for plain connections.
    pub keys: Vec<tls::Psk>,
    /// The number of the key that the controller has taken; 0 at first.
    pub offer: usize,
}

/// Makes the connections of one association.
pub(super) struct Dialer<'a> {
    address: &'a Address,
    subsystem: &'a Nqn,
    options: &'a Options,
    secrets: Secrets,
    /// The ops' memory, registered with the device of the first I/O queue.
    registered: Option<Arc<Registered>>,
}

impl<'a> Dialer<'a> {
    pub fn new(address: &'a Address, subsystem: &'a Nqn, options: &'a Options) -> Dialer<'a> {
        // Concatenation makes the key on a plain connection.
        let keys = if options.concatenation { Vec::new() } else { options.tls_keys(subsystem) };
        Dialer { address, subsystem, options, secrets: Secrets { keys, offer: 0 }, registered: None }
    }

    /// Secures the connections from now on by one of these keys.
    pub fn secure_by(&mut self, keys: Vec<tls::Psk>) {
        self.secrets = Secrets { keys, offer: 0 };
    }

    /// A connection for the queue `qid` of controller `cntlid`, on which up to `depth` commands may be outstanding: the
    /// transport may take fewer. Both numbers are 0 for an admin queue.
    pub fn open(&mut self, qid: u16, cntlid: u16, depth: u32) -> Result<Connection, Error> {
        let link = match self.address.transport {
            Transport::Tcp => {
                Link::Tcp(tcp::open(self.address, self.subsystem, self.options, depth, &mut self.secrets)?)
            }
            Transport::Rdma => {
                let wanted = rdma::Wanted { qid, cntlid, depth };
                Link::Rdma(rdma::open(self.address, self.options, wanted, &mut self.registered)?)
            }
        };
        Ok(Connection::new(link, self.address.place(), self.options.timeout))
    }
}
