//! The controller's side of an exchange.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::Entropy;
use super::authenticator::{Credentials, Policy};
use super::exchange::{Exchange, ExchangeState, Means};
use super::generated::{GeneratedKey, GeneratedKeys};
use super::group::Group;
use super::hash::Hash;
use super::message::{Failure, Message, NEW_KEY, NO_CONCATENATION};
use super::response::Transcript;

/// The exchange of one queue: takes messages of the host, and makes the answers.
pub struct Controller {
    host_nqn: String,
    subsystem_nqn: String,
    credentials: Credentials,
    policy: Policy,
    entropy: Entropy,
    step: Step,
    transaction: u16,
    /// The hash function and the group of the challenge, once it is chosen.
    means: Option<(Hash, Group)>,
    /// The place for the keys of TLS that the exchange has to make; `None` if it makes none.
    concatenates: Option<Arc<GeneratedKeys>>,
    /// The keys, until the exchange ends well.
    generated: Vec<GeneratedKey>,
}

/// The message that comes next.
enum Step {
    /// The controller awaits the host's AUTH_Negotiate.
    Negotiate,
    /// The controller is to send the challenge with this public value; once `sent`, it awaits the host's reply.
    Challenge { hash: Hash, group: Group, public: Vec<u8>, sent: bool },
    /// The controller is to send Success1; once `sent`, it awaits the host's Success2 if `answer` has R2.
    Success1 { hash: Hash, answer: Option<Vec<u8>>, sent: bool },
    /// Nothing: the host is known.
    Done,
    /// The authentication has failed. The controller is to send AUTH_Failure1 if the host has not given up itself, and
    /// nothing after it.
    Failed { why: Failure, tell: bool },
}

impl Controller {
    /// An exchange that is yet to begin. It makes a key of TLS if there is a place for that.
    pub fn new(
        host_nqn: &str,
        subsystem_nqn: &str,
        credentials: Credentials,
        mut policy: Policy,
        entropy: Entropy,
        concatenates: Option<Arc<GeneratedKeys>>,
    ) -> Controller {
        if concatenates.is_some() {
            policy.keep_those_of_tls();
        }
        Controller {
            host_nqn: host_nqn.into(),
            subsystem_nqn: subsystem_nqn.into(),
            credentials,
            policy,
            entropy,
            step: Step::Negotiate,
            transaction: 0,
            means: None,
            concatenates,
            generated: Vec::new(),
        }
    }

    /// SC_C that the host has to ask for.
    fn concatenation(&self) -> u8 {
        if self.concatenates.is_some() { NEW_KEY } else { NO_CONCATENATION }
    }

    fn challenge(&self, hash: Hash) -> &[u8] {
        &self.entropy.challenge[..hash.bytes()]
    }

    fn transcript<'a>(&'a self, hash: Hash, shared: &'a [u8], challenge: &'a [u8], sequence: u32) -> Transcript<'a> {
        Transcript {
            hash,
            shared,
            challenge,
            sequence,
            transaction: self.transaction,
            concatenation: self.concatenation(),
            host_nqn: &self.host_nqn,
            subsystem_nqn: &self.subsystem_nqn,
        }
    }

    /// Lets the keys of an exchange that has ended well count.
    fn publish(&mut self) {
        if let (Step::Done, Some(place)) = (&self.step, &self.concatenates) {
            place.add(&self.subsystem_nqn, &self.host_nqn, std::mem::take(&mut self.generated));
        }
    }

    /// The step that a message leads to.
    fn next(&mut self, message: &Message) -> Result<Step, Failure> {
        match (&self.step, message) {
            (_, Message::Failure2 { why, .. }) => Ok(Step::Failed { why: *why, tell: false }),
            (Step::Negotiate, Message::Negotiate { transaction, concatenation, hashes, groups }) => {
                self.transaction = *transaction;
                if *concatenation != self.concatenation() {
                    return Err(Failure::ConcatenationMismatch);
                }
                if hashes.is_empty() {
                    return Err(Failure::ProtocolNotUsable);
                }
                let hash = self.policy.hashes.iter().find(|hash| hashes.contains(&(**hash as u8)));
                let group = self.policy.groups.iter().find(|group| groups.contains(&(**group as u8)));
                let hash = *hash.ok_or(Failure::HashNotUsable)?;
                let group = *group.ok_or(Failure::GroupNotUsable)?;
                self.means = Some((hash, group));
                Ok(Step::Challenge { hash, group, public: group.public(&self.entropy.exponent), sent: false })
            }
            (
                Step::Challenge { hash, group, sent: true, .. },
                Message::Reply { transaction, sequence, response, challenge, public },
            ) if *transaction == self.transaction => {
                let (hash, group) = (*hash, *group);
                self.reply(hash, group, *sequence, response, challenge.as_deref(), public)
            }
            (Step::Success1 { answer: Some(_), sent: true, .. }, Message::Success2 { transaction })
                if *transaction == self.transaction =>
            {
                Ok(Step::Done)
            }
            _ => Err(Failure::IncorrectMessage),
        }
    }

    fn reply(
        &mut self,
        hash: Hash,
        group: Group,
        sequence: u32,
        response: &[u8],
        challenge: Option<&[u8]>,
        public: &[u8],
    ) -> Result<Step, Failure> {
        if response.len() != hash.bytes() {
            return Err(Failure::IncorrectPayload);
        }
        let shared: Zeroizing<Vec<u8>> =
            group.shared(&self.entropy.exponent, public).ok_or(Failure::IncorrectPayload)?;
        let host_key = self.credentials.host.key_for(&self.host_nqn);
        let first = self.transcript(hash, &shared, self.challenge(hash), self.entropy.sequence);
        if !first.is_host(&host_key, response) {
            return Err(Failure::Failed);
        }
        if self.concatenates.is_some() {
            let hosts = challenge.ok_or(Failure::IncorrectPayload)?;
            self.generated = GeneratedKey::of(hash, &shared, self.challenge(hash), hosts);
        }
        let answer = match (challenge, &self.credentials.controller) {
            (None, _) => None,
            // The challenge is for the key alone.
            (Some(_), _) if self.concatenates.is_some() && sequence == 0 => None,
            // The host asks for a proof that the controller cannot give.
            (Some(_), None) => return Err(Failure::Failed),
            // A peer that reflects a challenge has no key of its own.
            (Some(challenge), Some(_)) if challenge == self.challenge(hash) => return Err(Failure::Failed),
            (Some(challenge), Some(secret)) => {
                let key = secret.key_for(&self.subsystem_nqn);
                Some(self.transcript(hash, &shared, challenge, sequence).controller(&key))
            }
        };
        Ok(Step::Success1 { hash, answer, sent: false })
    }
}

impl Exchange for Controller {
    fn receive(&mut self, message: &[u8]) -> bool {
        // A message after the last message cannot change the outcome.
        if matches!(self.step, Step::Done | Step::Failed { .. }) {
            return false;
        }
        let step = Message::parse(message).and_then(|message| self.next(&message));
        self.step = step.unwrap_or_else(|why| Step::Failed { why, tell: true });
        self.publish();
        !matches!(self.step, Step::Failed { tell: false, .. })
    }

    fn send(&mut self, capacity: usize) -> Vec<u8> {
        let transaction = self.transaction;
        let (message, after) = match &self.step {
            Step::Challenge { hash, group, public, sent: false } => {
                let message = Message::Challenge {
                    transaction,
                    hash: *hash as u8,
                    group: *group as u8,
                    sequence: self.entropy.sequence,
                    challenge: self.challenge(*hash).to_vec(),
                    public: public.clone(),
                };
                (message, Step::Challenge { hash: *hash, group: *group, public: Vec::new(), sent: true })
            }
            Step::Success1 { hash, answer, sent: false } => {
                let message =
                    Message::Success1 { transaction, hash_bytes: hash.bytes() as u8, response: answer.clone() };
                let after = match answer {
                    None => Step::Done,
                    Some(_) => Step::Success1 { hash: *hash, answer: answer.clone(), sent: true },
                };
                (message, after)
            }
            Step::Failed { why, tell: true } => {
                (Message::Failure1 { transaction, why: *why }, Step::Failed { why: *why, tell: false })
            }
            Step::Failed { .. } => return Vec::new(),
            // The host receives when it should send.
            _ => {
                let why = Failure::IncorrectMessage;
                (Message::Failure1 { transaction, why }, Step::Failed { why, tell: false })
            }
        };
        let bytes = message.to_bytes();
        if bytes.len() > capacity {
            self.step = Step::Failed { why: Failure::IncorrectPayload, tell: false };
            return Vec::new();
        }
        self.step = after;
        self.publish();
        bytes
    }

    fn state(&self) -> ExchangeState {
        match self.step {
            Step::Done => ExchangeState::Done,
            Step::Failed { .. } => ExchangeState::Failed,
            _ => ExchangeState::Pending,
        }
    }

    fn failure(&self) -> Option<String> {
        match &self.step {
            Step::Failed { why, .. } => Some(why.to_string()),
            _ => None,
        }
    }

    fn proof(&self) -> Option<Means> {
        let (hash, group) = self.means.filter(|_| self.state() == ExchangeState::Done)?;
        Some(Means { hash: hash.name(), group: group.name() })
    }
}
