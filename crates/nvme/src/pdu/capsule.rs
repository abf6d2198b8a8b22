//! Capsules: a command, with or without its data, and the response to it.

use super::{Agreement, PduType, write_header};
use crate::spec::{Command, Completion};

/// Writes the header of a CapsuleCmd in front of `data_bytes` of in-capsule data (0 for none). Returns the bytes
/// written. The data and, where agreed on, their digest follow.
#[inline]
pub fn command(command: &Command, data_bytes: u32, agreement: &Agreement, out: &mut [u8]) -> usize {
    let mut header = [0; 72];
    header[8..].copy_from_slice(&command.write());
    write_header(PduType::CapsuleCmd, 0, header, data_bytes, agreement, out)
}

/// Writes a CapsuleResp. Returns the bytes written: 24, or 28 with a header digest.
#[inline]
pub fn response(completion: &Completion, agreement: &Agreement, out: &mut [u8]) -> usize {
    let mut header = [0; 24];
    header[8..].copy_from_slice(&completion.write());
    write_header(PduType::CapsuleResp, 0, header, 0, agreement, out)
}
