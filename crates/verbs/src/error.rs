//! The reason why RDMA cannot be used on this machine.

/// A library of rdma-core that cannot be used. The message is one line.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot open {library}: {reason} (RDMA needs rdma-core: Debian's packages libibverbs1, ibverbs-providers and \
     librdmacm1, elsewhere rdma-core or libibverbs and librdmacm)"
)]
pub struct Error {
    /// The library's name for the loader.
    pub library: &'static str,
    /// The message of the loader, or the function that is missing.
    pub reason: String,
}
