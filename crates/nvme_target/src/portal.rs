//! The addresses that hosts connect to. Each transport has its own ports: TCP and RDMA may use the same number.

use std::fmt;
use std::net::SocketAddr;

/// A transport of NVMe over Fabrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransportType {
    /// NVMe/TCP.
    Tcp,
    /// NVMe over RDMA.
    Rdma,
}

impl TransportType {
    /// The name in SPDK's calls: TCP or RDMA.
    pub fn name(self) -> &'static str {
        match self {
            TransportType::Tcp => "TCP",
            TransportType::Rdma => "RDMA",
        }
    }
}

/// An address that hosts connect to, on one transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Portal {
    /// The transport.
    pub transport: TransportType,
    /// The address.
    pub address: SocketAddr,
}

impl Portal {
    /// The address on RDMA.
    pub fn rdma(address: SocketAddr) -> Portal {
        Portal { transport: TransportType::Rdma, address }
    }
}

impl From<SocketAddr> for Portal {
    /// The address on TCP.
    fn from(address: SocketAddr) -> Portal {
        Portal { transport: TransportType::Tcp, address }
    }
}

impl fmt::Display for Portal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transport {
            TransportType::Tcp => self.address.fmt(f),
            TransportType::Rdma => write!(f, "rdma://{}", self.address),
        }
    }
}
