//! IP addresses as the structures of sockets, and back.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A socket address in the place that fits every one.
pub(super) fn to_storage(address: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: all bytes zero are a value of this structure of numbers.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    match address {
        SocketAddr::V4(it) => {
            let plain = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: it.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(it.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage has room for every address and its alignment.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(plain) };
        }
        SocketAddr::V6(it) => {
            let plain = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: it.port().to_be(),
                sin6_flowinfo: it.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: it.ip().octets() },
                sin6_scope_id: it.scope_id(),
            };
            // SAFETY: the storage has room for every address and its alignment.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(plain) };
        }
    }
    storage
}

/// The address in the storage; `None` if the family is not that of IP addresses.
pub(super) fn from_storage(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let storage: *const libc::sockaddr_storage = storage;
    // SAFETY: the pointer is that of a reference, which is valid.
    match i32::from(unsafe { (*storage).ss_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that the storage is this structure.
            let plain = unsafe { *storage.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(plain.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(plain.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that the storage is this structure.
            let plain = unsafe { *storage.cast::<libc::sockaddr_in6>() };
            let (ip, port) = (Ipv6Addr::from(plain.sin6_addr.s6_addr), u16::from_be(plain.sin6_port));
            Some(SocketAddrV6::new(ip, port, plain.sin6_flowinfo, plain.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_were() {
        for text in ["192.0.2.7:4420", "[2001:db8::1]:4420", "[fe80::1%3]:1", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(from_storage(&to_storage(address)), Some(address));
        }
    }
}
