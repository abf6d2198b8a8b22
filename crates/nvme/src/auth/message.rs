//! The messages, as the figures of section 8.13 lay them out.

use super::group::Group;
use super::hash::Hash;

/// Message type of those that all protocols share.
const COMMON: u8 = 0x00;
/// Message type of DH-HMAC-CHAP.
const DH_HMAC_CHAP: u8 = 0x01;
/// AUTHID of DH-HMAC-CHAP in a protocol descriptor.
const PROTOCOL: u8 = 0x01;
const NEGOTIATE: (u8, u8) = (COMMON, 0x00);
const FAILURE1: (u8, u8) = (COMMON, 0xf1);
const FAILURE2: (u8, u8) = (COMMON, 0xf0);
const CHALLENGE: (u8, u8) = (DH_HMAC_CHAP, 0x01);
const REPLY: (u8, u8) = (DH_HMAC_CHAP, 0x02);
const SUCCESS1: (u8, u8) = (DH_HMAC_CHAP, 0x03);
const SUCCESS2: (u8, u8) = (DH_HMAC_CHAP, 0x04);

/// Bytes of a protocol descriptor: four of head, 30 hash and 30 group identifiers.
const DESCRIPTOR_BYTES: usize = 64;
const IDS: usize = 30;

/// The reason why an exchange failed: the reason code explanation of AUTH_Failure1 and AUTH_Failure2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A response is wrong: the keys differ.
    #[error("authentication failed: the keys differ")]
    Failed = 0x01,
    /// Host and controller know no common protocol.
    #[error("no common authentication protocol")]
    ProtocolNotUsable = 0x02,
    /// Secure channel concatenation is asked for and not possible, or the other way round.
    #[error("secure channel concatenation does not match")]
    ConcatenationMismatch = 0x03,
    /// Host and controller accept no common hash function.
    #[error("no common hash function")]
    HashNotUsable = 0x04,
    /// Host and controller accept no common group.
    #[error("no common Diffie-Hellman group")]
    GroupNotUsable = 0x05,
    /// A message of the right kind with a content that makes no sense.
    #[error("a message had a wrong content")]
    IncorrectPayload = 0x06,
    /// The message is not the one that is due.
    #[error("a message came out of turn")]
    IncorrectMessage = 0x07,
}

impl Failure {
    const ALL: [Failure; 7] = [
        Failure::Failed,
        Failure::ProtocolNotUsable,
        Failure::ConcatenationMismatch,
        Failure::HashNotUsable,
        Failure::GroupNotUsable,
        Failure::IncorrectPayload,
        Failure::IncorrectMessage,
    ];
}

/// One message of an authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The hashes and groups of the host.
    Negotiate { transaction: u16, concatenation: u8, hashes: Vec<u8>, groups: Vec<u8> },
    /// The choice of the controller, and its challenge.
    Challenge { transaction: u16, hash: u8, group: u8, sequence: u32, challenge: Vec<u8>, public: Vec<u8> },
    /// The host's response, and its own challenge if it wants the controller to prove itself.
    Reply { transaction: u16, sequence: u32, response: Vec<u8>, challenge: Option<Vec<u8>>, public: Vec<u8> },
    /// The host is known; the controller's response if it was asked for.
    Success1 { transaction: u16, hash_bytes: u8, response: Option<Vec<u8>> },
    /// The controller is known.
    Success2 { transaction: u16 },
    /// The controller gives up.
    Failure1 { transaction: u16, why: Failure },
    /// The host gives up.
    Failure2 { transaction: u16, why: Failure },
}

impl Message {
    pub fn transaction(&self) -> u16 {
        match self {
            Message::Negotiate { transaction, .. }
            | Message::Challenge { transaction, .. }
            | Message::Reply { transaction, .. }
            | Message::Success1 { transaction, .. }
            | Message::Success2 { transaction }
            | Message::Failure1 { transaction, .. }
            | Message::Failure2 { transaction, .. } => *transaction,
        }
    }

    /// The message in these bytes; the function does not look at bytes behind it.
    pub fn parse(bytes: &[u8]) -> Result<Message, Failure> {
        let wrong = Failure::IncorrectPayload;
        let head: &[u8; 6] = bytes.first_chunk().ok_or(wrong)?;
        let transaction = u16::from_le_bytes([head[4], head[5]]);
        let body = &bytes[6..];
        let at = |index: usize| body.get(index).copied().ok_or(wrong);
        let range = |from: usize, length: usize| body.get(from..from + length).map(<[u8]>::to_vec).ok_or(wrong);
        let u16_at = |index: usize| Ok::<_, Failure>(u16::from_le_bytes([at(index)?, at(index + 1)?]));
        let u32_at = |index: usize| {
            Ok::<_, Failure>(u32::from_le_bytes([at(index)?, at(index + 1)?, at(index + 2)?, at(index + 3)?]))
        };
        Ok(match (head[0], head[1]) {
            NEGOTIATE => {
                let (concatenation, descriptors) = (at(0)?, at(1)?);
                let mut chosen = (Vec::new(), Vec::new());
                for number in 0..usize::from(descriptors) {
                    let descriptor = range(2 + number * DESCRIPTOR_BYTES, DESCRIPTOR_BYTES)?;
                    let (hashes, groups) = (usize::from(descriptor[2]), usize::from(descriptor[3]));
                    if descriptor[0] == PROTOCOL && chosen.0.is_empty() {
                        if hashes > IDS || groups > IDS {
                            return Err(wrong);
                        }
                        let ids = &descriptor[4..];
                        chosen = (ids[..hashes].to_vec(), ids[IDS..IDS + groups].to_vec());
                    }
                }
                Message::Negotiate { transaction, concatenation, hashes: chosen.0, groups: chosen.1 }
            }
            CHALLENGE => {
                let (hl, hash, group, dhvlen) = (usize::from(at(0)?), at(2)?, at(3)?, usize::from(u16_at(4)?));
                let (challenge, public) = (range(10, hl)?, range(10 + hl, dhvlen)?);
                Message::Challenge { transaction, hash, group, sequence: u32_at(6)?, challenge, public }
            }
            REPLY => {
                let (hl, cvalid, dhvlen) = (usize::from(at(0)?), at(2)?, usize::from(u16_at(4)?));
                let challenge = range(10 + hl, hl)?;
                Message::Reply {
                    transaction,
                    sequence: u32_at(6)?,
                    response: range(10, hl)?,
                    challenge: (cvalid & 1 != 0).then_some(challenge),
                    public: range(10 + 2 * hl, dhvlen)?,
                }
            }
            SUCCESS1 => {
                let (hash_bytes, rvalid) = (at(0)?, at(2)?);
                at(9)?;
                let response = if rvalid & 1 != 0 { Some(range(10, hash_bytes.into())?) } else { None };
                Message::Success1 { transaction, hash_bytes, response }
            }
            SUCCESS2 => Message::Success2 { transaction },
            kind @ (FAILURE1 | FAILURE2) => {
                let code = at(1)?;
                let why = Failure::ALL.into_iter().find(|why| *why as u8 == code).unwrap_or(Failure::Failed);
                match kind {
                    FAILURE1 => Message::Failure1 { transaction, why },
                    _ => Message::Failure2 { transaction, why },
                }
            }
            _ => return Err(Failure::IncorrectMessage),
        })
    }

    /// The bytes of the message.
    pub fn to_bytes(&self) -> Vec<u8> {
        let start = |(kind, id): (u8, u8)| {
            let [low, high] = self.transaction().to_le_bytes();
            vec![kind, id, 0, 0, low, high]
        };
        match self {
            Message::Negotiate { concatenation, hashes, groups, .. } => {
                let mut ids = [0; 2 * IDS];
                ids[..hashes.len()].copy_from_slice(hashes);
                ids[IDS..IDS + groups.len()].copy_from_slice(groups);
                let descriptor = [PROTOCOL, 0, hashes.len() as u8, groups.len() as u8];
                [start(NEGOTIATE).as_slice(), &[*concatenation, 1], &descriptor, &ids].concat()
            }
            Message::Challenge { hash, group, sequence, challenge, public, .. } => {
                let [low, high] = (public.len() as u16).to_le_bytes();
                let head = [challenge.len() as u8, 0, *hash, *group, low, high];
                [start(CHALLENGE).as_slice(), &head, &sequence.to_le_bytes(), challenge, public].concat()
            }
            Message::Reply { sequence, response, challenge, public, .. } => {
                let [low, high] = (public.len() as u16).to_le_bytes();
                let head = [response.len() as u8, 0, u8::from(challenge.is_some()), 0, low, high];
                let none = vec![0; response.len()];
                let challenge = challenge.as_ref().unwrap_or(&none);
                [start(REPLY).as_slice(), &head, &sequence.to_le_bytes(), response, challenge, public].concat()
            }
            Message::Success1 { hash_bytes, response, .. } => {
                let head = [*hash_bytes, 0, u8::from(response.is_some()), 0, 0, 0, 0, 0, 0, 0];
                [start(SUCCESS1).as_slice(), &head, response.as_deref().unwrap_or_default()].concat()
            }
            Message::Success2 { .. } => [start(SUCCESS2).as_slice(), &[0; 10]].concat(),
            // The reason code is always "authentication failure".
            Message::Failure1 { why, .. } => [start(FAILURE1).as_slice(), &[0x01, *why as u8]].concat(),
            Message::Failure2 { why, .. } => [start(FAILURE2).as_slice(), &[0x01, *why as u8]].concat(),
        }
    }
}

/// SC_C of an exchange that makes no key of TLS.
pub(super) const NO_CONCATENATION: u8 = 0;
/// SC_C of an exchange that makes the first key of TLS of an association (NEWTLSPSK).
pub(super) const NEW_KEY: u8 = 2;

/// The offer of a host.
pub(super) fn offer(transaction: u16, concatenation: u8, hashes: &[Hash], groups: &[Group]) -> Message {
    Message::Negotiate {
        transaction,
        concatenation,
        hashes: hashes.iter().map(|hash| *hash as u8).collect(),
        groups: groups.iter().map(|group| *group as u8).collect(),
    }
}
