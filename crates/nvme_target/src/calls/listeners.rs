//! Calls about listeners: the addresses on which a subsystem and discovery are reached, and referrals.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError, mpsc};

use nvme::spec::ana::AnaState;
use verbs::Either;

use crate::configuration::Configuration;
use crate::mailbox::Message;
use crate::transport::cannot_listen;
use crate::{Departure, Error, Portal, Referral, SecureChannel, Target, TransportType};

/// Connections that the kernel may hold for a listener before the target accepts them.
const BACKLOG: i32 = 4096;

/// A socket that listens, and its address.
fn bind(address: SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let socket = TcpListener::bind(address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    socket.set_nonblocking(true)?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

impl Target {
    /// Succeeds if the target can serve over RDMA: the library is there. The listener tells if the device is.
    ///
    /// # Errors
    /// The library that is missing.
    pub fn check_rdma(&self) -> Result<(), Error> {
        self.shared.verbs().map(drop)
    }

    /// Has the target use a stack of RDMA other than this machine's, such as the one in memory for tests. It has no
    /// effect once the target listens on RDMA.
    pub fn use_verbs(&self, verbs: Either) {
        let _ = self.shared.verbs.set(verbs);
    }

    /// Makes the subsystem (and discovery) reachable on `address`. Returns the address, with a port that the system
    /// chose if the given one was 0.
    ///
    /// # Errors
    /// `NotFound`; `Exists` if the subsystem has the listener; `System` when the address cannot be bound.
    pub fn add_listener(&self, nqn: &str, address: SocketAddr) -> Result<SocketAddr, Error> {
        self.listen(nqn, address.into(), None, AnaState::Optimized)
    }

    /// As [`Target::add_listener`], over RDMA: the address is one of an RDMA device.
    ///
    /// # Errors
    /// Those of [`Target::add_listener`]; `Invalid` without rdma-core.
    pub fn add_rdma_listener(&self, nqn: &str, address: SocketAddr) -> Result<SocketAddr, Error> {
        self.listen(nqn, Portal::rdma(address), None, AnaState::Optimized)
    }

    /// As [`Target::add_listener`], for hosts that prove a key of [`Target::set_tls_keys`] and speak TLS 1.3. All
    /// subsystems on an address have the same demand.
    ///
    /// # Errors
    /// Those of [`Target::add_listener`]; `Invalid` if OpenSSL 3 is not there.
    pub fn add_secure_listener(
        &self,
        nqn: &str,
        address: SocketAddr,
        demand: SecureChannel,
    ) -> Result<SocketAddr, Error> {
        self.listen(nqn, address.into(), Some(demand), AnaState::Optimized)
    }

    /// As [`Target::add_listener`] without `secured`, and as [`Target::add_secure_listener`] with it. All ANA groups
    /// have that state on the listener, if the subsystem reports it.
    ///
    /// # Errors
    /// Those of [`Target::add_listener`] and of [`Target::add_secure_listener`].
    pub fn listen(
        &self,
        nqn: &str,
        portal: Portal,
        secured: Option<SecureChannel>,
        ana_state: AnaState,
    ) -> Result<SocketAddr, Error> {
        if secured.is_some() && portal.transport == TransportType::Rdma {
            return Err(Error::invalid("TLS is TCP's: over RDMA hosts prove themselves by DH-HMAC-CHAP (dhchap_key)"));
        }
        if secured.is_some() {
            self.shared.security.prepare()?;
        }
        let mut configuration = Configuration::clone(&self.shared.configuration());
        configuration.listeners_mut(nqn)?;
        let is_new = !configuration.listens(portal);
        if !is_new {
            self.change(|configuration| configuration.add_listener(nqn, portal, secured, ana_state))?;
            return Ok(portal.address);
        }
        match portal.transport {
            TransportType::Tcp => {
                let (socket, address) =
                    bind(portal.address).map_err(|e| Error::system(format!("cannot listen on {portal}"), e))?;
                let portal = Portal::from(address);
                self.change(|configuration| configuration.add_listener(nqn, portal, secured, ana_state))?;
                let socket = Mutex::new(Some(socket));
                self.shared.ask(0, |done| match socket.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    Some(socket) => Message::Listen(address, socket, done),
                    None => Message::Unlisten(portal, done),
                });
                Ok(address)
            }
            TransportType::Rdma => {
                self.shared.verbs()?;
                let (sender, answer) = mpsc::channel();
                self.shared.send(0, Message::ListenRdma(portal.address, sender));
                let bound = answer.recv().map_err(|_| Error::invalid("the target has ended"))?;
                let address = bound.map_err(|e| cannot_listen(portal, e))?;
                let portal = Portal::rdma(address);
                let added = self.change(|configuration| configuration.add_listener(nqn, portal, secured, ana_state));
                if added.is_err() {
                    self.shared.ask(0, |done| Message::Unlisten(portal, done));
                }
                added.map(|()| address)
            }
        }
    }

    /// Makes the subsystem unreachable on `address`; connections that came in on it end. The port is closed with its
    /// last subsystem. Returns the ops that devices still have of these connections.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn remove_listener(&self, nqn: &str, address: impl Into<Portal>) -> Result<Departure, Error> {
        let portal = address.into();
        let (is_used, leaving) = self.change(|configuration| configuration.remove_listener(nqn, portal))?;
        if !is_used {
            self.shared.ask(0, |done| Message::Unlisten(portal, done));
        }
        Ok(leaving.map_or_else(Departure::default, |leaving| self.departure(leaving)))
    }

    /// The addresses on which the discovery service is reachable, in order: its own addresses, and the addresses of all
    /// subsystems.
    pub fn discovery_listeners(&self) -> Vec<Portal> {
        let mut listeners: Vec<Portal> = self.shared.configuration().all_listeners().collect();
        listeners.sort();
        listeners.dedup();
        listeners
    }

    /// Names another discovery service to hosts that ask this one; connected hosts are told.
    ///
    /// # Errors
    /// `Exists`.
    pub fn add_referral(&self, referral: Referral) -> Result<(), Error> {
        self.change(|configuration| configuration.add_referral(referral))
    }

    /// Stops naming another discovery service to hosts; connected hosts are told.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn remove_referral(&self, referral: &Referral) -> Result<(), Error> {
        self.change(|configuration| configuration.remove_referral(referral))
    }

    /// The discovery services that this one names, in order of addition.
    pub fn referrals(&self) -> Vec<Referral> {
        self.shared.configuration().referrals.clone()
    }
}
