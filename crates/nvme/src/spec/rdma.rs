//! NVMe over RDMA on the wire (NVM Express RDMA Transport Specification 1.0): the private data of connections, the
//! descriptors of data in the host's memory, and the transport's part of discovery entries.
//!
//! Structures are plain values as in the rest of [`spec`](super). The sender of a connection request is not trusted:
//! [`ConnectRequest::of`] checks its form, and [`KeyedSgl::of`] gives a range that does not wrap around.

use super::{Sgl, Status};

/// The record format of all private data here: RECFMT 0.
const RECFMT: u16 = 0;

layout! {
    /// The private data of a connection request.
    pub struct ConnectRequest: 32 {
        /// Record format: 0.
        recfmt: u16 = 0,
        /// The identifier of the queue: 0 for the admin queue.
        qid: u16 = 2,
        /// Entries of the host's receive queue: responses that may be on their way to it.
        hrqsize: u16 = 4,
        /// Entries of the host's send queue minus one.
        hsqsize: u16 = 6,
        /// The controller that an I/O queue is for; 0 for the admin queue, and from hosts that do not say.
        cntlid: u16 = 8,
    }
}

impl ConnectRequest {
    /// The request in the private data of a connection. Some fabrics pad private data: bytes behind the request do not
    /// matter.
    ///
    /// # Errors
    /// [`Reject::LENGTH`] if there are too few bytes, [`Reject::RECFMT`] for an unknown record format.
    pub fn of(private_data: &[u8]) -> Result<ConnectRequest, Reject> {
        let bytes = private_data.first_chunk().ok_or(Reject::LENGTH)?;
        let request = ConnectRequest::read(bytes);
        if request.recfmt == RECFMT { Ok(request) } else { Err(Reject::RECFMT) }
    }

    /// Entries of the host's send queue: commands that may be on their way to the controller.
    pub fn send_entries(&self) -> u32 {
        u32::from(self.hsqsize) + 1
    }
}

layout! {
    /// The private data of an accepted connection.
    pub struct ConnectAccept: 32 {
        /// Record format: 0.
        recfmt: u16 = 0,
        /// Entries of the controller's receive queue: commands that may be on their way to it.
        crqsize: u16 = 2,
    }
}

impl ConnectAccept {
    /// The acceptance in the private data of a connection; `None` if there are too few bytes, or the record format is
    /// unknown.
    pub fn of(private_data: &[u8]) -> Option<ConnectAccept> {
        Some(ConnectAccept::read(private_data.first_chunk()?)).filter(|accept| accept.recfmt == RECFMT)
    }
}

layout! {
    /// The private data of a refused connection.
    pub struct ConnectReject: 4 {
        /// Record format: 0.
        recfmt: u16 = 0,
        /// The reason: a constant of [`Reject`].
        sts: u16 = 2,
    }
}

impl ConnectReject {
    /// The reason in the private data of a refused connection; `None` if there are too few bytes, or the record format
    /// is unknown: the refusal then comes from the connection manager.
    pub fn of(private_data: &[u8]) -> Option<Reject> {
        let refusal = ConnectReject::read(private_data.first_chunk()?);
        (refusal.recfmt == RECFMT).then_some(Reject(refusal.sts))
    }
}

/// The reason why a controller refuses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject(pub u16);

impl Reject {
    /// The private data have an invalid length.
    pub const LENGTH: Reject = Reject(1);
    /// The record format is unknown.
    pub const RECFMT: Reject = Reject(2);
    /// The identifier of the queue is invalid.
    pub const QID: Reject = Reject(3);
    /// HSQSIZE is invalid.
    pub const HSQSIZE: Reject = Reject(4);
    /// HRQSIZE is invalid.
    pub const HRQSIZE: Reject = Reject(5);
    /// The controller has no resources for the queue.
    pub const NO_RESOURCES: Reject = Reject(6);
    /// The number of incoming RDMA READs is invalid.
    pub const IRD: Reject = Reject(7);
    /// The number of outgoing RDMA READs is invalid.
    pub const ORD: Reject = Reject(8);
    /// The controller does not exist, or is another host's.
    pub const CNTLID: Reject = Reject(9);

    /// The private data that tell the reason.
    pub fn private_data(self) -> [u8; ConnectReject::BYTES] {
        ConnectReject { recfmt: RECFMT, sts: self.0 }.write()
    }

    /// The reason in words.
    pub fn name(self) -> &'static str {
        match self {
            Reject::LENGTH => "invalid length of the private data",
            Reject::RECFMT => "unknown record format",
            Reject::QID => "invalid queue",
            Reject::HSQSIZE => "invalid size of the host's send queue",
            Reject::HRQSIZE => "invalid size of the host's receive queue",
            Reject::NO_RESOURCES => "no resources for the queue",
            Reject::IRD => "invalid number of incoming RDMA READs",
            Reject::ORD => "invalid number of outgoing RDMA READs",
            Reject::CNTLID => "invalid controller",
            Reject(_) => "unknown reason",
        }
    }
}

/// A range of the host's memory that a command names: a Keyed SGL Data Block descriptor (Base specification 2.0,
/// section 4.1.2). `address + length` is no more than 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedSgl {
    /// The first byte.
    pub address: u64,
    /// Bytes, at most [`KeyedSgl::MAX_BYTES`].
    pub length: u32,
    /// The key under which the host has registered the range (RKEY).
    pub key: u32,
    /// True if the controller invalidates the key with the response: the host does not do it itself then.
    pub invalidate: bool,
}

/// The place of a command's data over RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RdmaData {
    /// In the command's capsule.
    InCapsule {
        /// Bytes from the start of the capsule's data.
        offset: u64,
        /// Length in bytes.
        length: u32,
    },
    /// In the host's memory.
    Remote(KeyedSgl),
}

impl KeyedSgl {
    /// The longest range: the field has 24 bits.
    pub const MAX_BYTES: u32 = (1 << 24) - 1;
    const ADDRESS: u8 = 0x40;
    const INVALIDATE: u8 = 0x4f;

    /// The descriptor for a command. Bits of `length` beyond [`KeyedSgl::MAX_BYTES`] do not exist on the wire.
    #[inline]
    pub fn descriptor(&self) -> Sgl {
        debug_assert!(self.length <= KeyedSgl::MAX_BYTES);
        let [low, high @ ..] = self.key.to_le_bytes();
        Sgl {
            address: self.address,
            length: self.length & KeyedSgl::MAX_BYTES | u32::from(low) << 24,
            key: high,
            id: if self.invalidate { KeyedSgl::INVALIDATE } else { KeyedSgl::ADDRESS },
        }
    }

    /// The range that a descriptor names.
    ///
    /// # Errors
    /// [`Status::SGL_DESCRIPTOR_TYPE_INVALID`] for another descriptor, [`Status::DATA_SGL_LENGTH_INVALID`] for a range
    /// that goes beyond the end of the address space.
    #[inline]
    pub fn of(sgl: &Sgl) -> Result<KeyedSgl, Status> {
        let invalidate = match sgl.id {
            KeyedSgl::ADDRESS => false,
            KeyedSgl::INVALIDATE => true,
            _ => return Err(Status::SGL_DESCRIPTOR_TYPE_INVALID),
        };
        let [first, second, third] = sgl.key;
        let key = u32::from_le_bytes([(sgl.length >> 24) as u8, first, second, third]);
        let length = sgl.length & KeyedSgl::MAX_BYTES;
        // The last byte is at 2^64 - 1 at most.
        if length > 0 && sgl.address.checked_add(u64::from(length) - 1).is_none() {
            return Err(Status::DATA_SGL_LENGTH_INVALID);
        }
        Ok(KeyedSgl { address: sgl.address, length, key, invalidate })
    }
}

impl RdmaData {
    /// The place of the data that the descriptor gives.
    ///
    /// # Errors
    /// Those of [`KeyedSgl::of`], for every descriptor that is not an offset in the capsule.
    #[inline]
    pub fn of(sgl: &Sgl) -> Result<RdmaData, Status> {
        match sgl.id {
            Sgl::OFFSET => Ok(RdmaData::InCapsule { offset: sgl.address, length: sgl.length }),
            _ => KeyedSgl::of(sgl).map(RdmaData::Remote),
        }
    }
}

layout! {
    /// TSAS of a discovery entry whose transport is RDMA: the transport's own part of the address.
    pub struct RdmaAddress: 256 {
        /// The service of queue pairs: [`RdmaAddress::RELIABLE_CONNECTED`].
        qptype: u8 = 0,
        /// The provider: [`RdmaAddress::ROCE_V2`] and the like.
        prtype: u8 = 1,
        /// The connection management service: [`RdmaAddress::RDMA_CM`].
        cms: u8 = 2,
        /// The partition key on InfiniBand.
        pkey: u16 = 8,
    }
}

impl RdmaAddress {
    /// RDMA_QPTYPE: reliable connected.
    pub const RELIABLE_CONNECTED: u8 = 1;
    /// RDMA_PRTYPE: the target does not say.
    pub const UNSPECIFIED: u8 = 1;
    /// RDMA_PRTYPE: InfiniBand.
    pub const INFINIBAND: u8 = 2;
    /// RDMA_PRTYPE: RoCE, version 1.
    pub const ROCE: u8 = 3;
    /// RDMA_PRTYPE: RoCE, version 2.
    pub const ROCE_V2: u8 = 4;
    /// RDMA_PRTYPE: iWARP.
    pub const IWARP: u8 = 5;
    /// RDMA_CMS: the connection manager that addresses hosts by their IP address.
    pub const RDMA_CM: u8 = 1;
}
