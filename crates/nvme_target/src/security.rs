//! Listeners that demand TLS (NVMe/TCP Transport Specification 1.1, section 3.6.1).

use std::io;
use std::net::TcpStream;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use nvme::Wire;
use tls::{Acceptor, Find, Pending};

use super::configuration::{Configuration, SecureChannel};
use super::portal::Portal;
use super::{Error, ErrorKind};

/// TLS of the target. OpenSSL is opened with the first listener that demands TLS.
#[derive(Default)]
pub(super) struct Security {
    acceptor: OnceLock<Arc<Acceptor>>,
    find: RwLock<Option<Find>>,
}

impl Security {
    /// Sets the keys that hosts may prove, for connections from now on.
    pub fn set_keys(&self, find: Find) {
        *self.find.write().unwrap_or_else(PoisonError::into_inner) = Some(find);
    }

    /// Makes ready for a listener that demands TLS.
    ///
    /// # Errors
    /// OpenSSL is missing, or nobody has set keys.
    pub fn prepare(&self) -> Result<(), Error> {
        if self.find.read().unwrap_or_else(PoisonError::into_inner).is_none() {
            return Err(Error::invalid("TLS needs keys, and the target was made without"));
        }
        if self.acceptor.get().is_none() {
            let acceptor = Acceptor::new().map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
            let _ = self.acceptor.set(Arc::new(acceptor)); // another thread was as quick
        }
        Ok(())
    }

    /// The stream of a connection that came in on `listener`: secured if the listener speaks TLS, unless the host may
    /// and does begin plainly.
    ///
    /// # Errors
    /// The target has no keys.
    pub fn wire(&self, tcp: TcpStream, listener: Portal, configuration: &Configuration) -> io::Result<Wire> {
        let Some(demand) = configuration.secured.get(&listener) else { return Ok(Wire::Plain(tcp)) };
        let find = self.find.read().unwrap_or_else(PoisonError::into_inner).clone();
        let (Some(acceptor), Some(find)) = (self.acceptor.get(), find) else {
            return Err(io::ErrorKind::PermissionDenied.into());
        };
        let pending = Pending::new(Arc::clone(acceptor), tcp, find);
        Ok(Wire::pending(pending, *demand == SecureChannel::Concatenated))
    }
}
