//! The structures and constants of the NVM Express specifications: Base 2.0 (with its chapter on Fabrics) and NVM
//! Command Set 1.0.
//!
//! Structures are plain values with `read` from and `write` to arrays of their exact size; nothing allocates.

pub mod ana;
mod command;
mod completion;
pub mod fabrics;
pub mod feature;
mod identify;
pub mod log;
mod nqn;
pub mod opcode;
pub mod property;
pub mod rdma;
pub mod reservation;
mod status;
mod text;

pub use command::{Command, CopySource, Data, GetLogPage, Identify, Range, Sgl};
pub use completion::{AsyncEvent, Completion};
pub use identify::{
    CONTROLLER_LIST_BYTES, IdentifyController, IdentifyNamespace, LbaFormat, MOST_CONTROLLERS, NAMESPACE_LIST_BYTES,
    NamespaceIds, cns, controller_list, listed_controllers, namespace_list, oacs, oncs,
};
pub use nqn::{DISCOVERY_NQN, Nqn, NqnError};
pub use status::Status;
pub use text::Text;
