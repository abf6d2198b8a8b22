//! Reasons why a connection cannot be made. Once a connection exists, errors are error numbers.

use std::io;

/// The reasons why connecting to a volume failed. Every message is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The shared library is missing, or is none that is known.
    #[error(
        "cannot open libgfapi.so.0: {0} (it comes with GlusterFS 6 to 11: Debian's package libgfapi0, elsewhere \
         glusterfs-api)"
    )]
    Library(String),
    /// Nothing listens at the server's address.
    #[error("cannot reach the Gluster server {server}: {source} (is glusterd running there, and no firewall between?)")]
    Unreachable {
        /// Host and port, or the path of a socket.
        server: String,
        /// The error of the attempt to connect.
        source: io::Error,
    },
    /// The server is there, the volume is not to be had.
    #[error("cannot open volume {volume} of {server}: {source} ({hint})")]
    Refused {
        /// The volume's name.
        volume: String,
        /// Host and port, or the path of a socket.
        server: String,
        /// The error of libgfapi.
        source: io::Error,
        /// The likely cause and what to do.
        hint: &'static str,
    },
    /// The connection was not made in time.
    #[error(
        "volume {volume} of {server} does not answer within {seconds} s (are its bricks up? `gluster volume status \
         {volume}` tells)"
    )]
    TimedOut {
        /// The volume's name.
        volume: String,
        /// Host and port, or the path of a socket.
        server: String,
        /// The time that was waited.
        seconds: u64,
    },
    /// The caller stopped the attempt to connect.
    #[error("connecting to volume {volume} was stopped")]
    Stopped {
        /// The volume's name.
        volume: String,
    },
    /// An address that libgfapi cannot be told: a NUL byte, an empty name.
    #[error("{0}")]
    Address(String),
}

impl Error {
    /// The error number that fits best.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Library(_) => libc::ENOSYS,
            Error::Unreachable { source, .. } | Error::Refused { source, .. } => {
                source.raw_os_error().unwrap_or(libc::ENOTCONN)
            }
            Error::TimedOut { .. } => libc::ETIMEDOUT,
            Error::Stopped { .. } => libc::EINTR,
            Error::Address(_) => libc::EINVAL,
        }
    }
}
