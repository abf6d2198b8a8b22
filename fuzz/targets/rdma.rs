//! Promises that hold for any bytes that a peer sends over RDMA.

use nvme::spec::Sgl;
use nvme::spec::rdma::{ConnectAccept, ConnectReject, ConnectRequest, KeyedSgl, RdmaData, Reject};

/// Private data and descriptors from a peer: private data are read and written back as they came, or refused; ranges of
/// descriptors do not wrap around.
pub fn rdma(data: &[u8]) {
    match ConnectRequest::of(data) {
        Ok(request) => {
            assert_eq!(ConnectRequest::of(&request.write()), Ok(request));
            assert_eq!(request.write()[..10], data[..10]);
            assert!((1..=1 << 16).contains(&request.send_entries()));
        }
        Err(reject) => {
            assert_eq!(reject, if data.len() < ConnectRequest::BYTES { Reject::LENGTH } else { Reject::RECFMT });
            assert_eq!(ConnectReject::of(&reject.private_data()), Some(reject));
        }
    }
    if let Some(accept) = ConnectAccept::of(data) {
        assert_eq!(accept.write()[..4], data[..4]);
    }
    if let Some(reject) = ConnectReject::of(data) {
        assert_eq!(reject.private_data(), data[..4]);
        assert!(!reject.name().is_empty());
    }
    let Some(descriptor) = data.first_chunk() else { return };
    let sgl = Sgl::read(descriptor);
    assert_eq!(sgl.write(), *descriptor);
    match RdmaData::of(&sgl) {
        Ok(RdmaData::Remote(range)) => {
            assert!(u128::from(range.address) + u128::from(range.length) <= 1 << 64);
            assert_eq!((range.descriptor(), KeyedSgl::of(&sgl)), (sgl, Ok(range)));
            assert_eq!(descriptor[11..15], range.key.to_le_bytes());
        }
        Ok(RdmaData::InCapsule { offset, length }) => assert_eq!((sgl.address, sgl.length), (offset, length)),
        Err(_) => assert_ne!(sgl.id, 1),
    }
}
