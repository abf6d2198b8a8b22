//! The host's side of an exchange.

use super::generated::GeneratedKey;
use super::group::Group;
use super::hash::Hash;
use super::message::{Failure, Message, NEW_KEY, NO_CONCATENATION, offer};
use super::response::Transcript;
use super::secret::Secret;
use super::{Entropy, Policy};

/// One queue's exchange, from the host's side: `start`, then a message in and a message out until there is a [`Proof`].
pub struct Host {
    host_nqn: String,
    subsystem_nqn: String,
    secret: Secret,
    /// The secret that the controller must prove to have; `None` if it need not prove itself.
    controller: Option<Secret>,
    policy: Policy,
    entropy: Entropy,
    step: Step,
    /// True if the exchange makes a key of TLS.
    concatenates: bool,
    generated: Vec<GeneratedKey>,
}

enum Step {
    Start,
    Challenge,
    /// The host awaits Success1, whose R2 must be the expected response.
    Success1 {
        hash: Hash,
        group: Group,
        expected: Option<Vec<u8>>,
    },
    Over,
}

/// The outcome of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The hash function that the controller chose.
    pub hash: Hash,
    /// The group that the controller chose.
    pub group: Group,
    /// True if the controller has proven itself too.
    pub mutual: bool,
}

impl Host {
    /// An exchange that is yet to begin; with `controller`'s key the controller must prove itself too.
    pub fn new(
        host_nqn: &str,
        subsystem_nqn: &str,
        secret: Secret,
        controller: Option<Secret>,
        policy: Policy,
        entropy: Entropy,
    ) -> Host {
        let (host_nqn, subsystem_nqn) = (host_nqn.into(), subsystem_nqn.into());
        let (step, concatenates, generated) = (Step::Start, false, Vec::new());
        Host { host_nqn, subsystem_nqn, secret, controller, policy, entropy, step, concatenates, generated }
    }

    /// As [`Host::new`], but the exchange makes a key of TLS too: see [`Host::generated`].
    pub fn concatenating(mut self) -> Host {
        self.concatenates = true;
        self.policy.keep_those_of_tls();
        self
    }

    /// The keys of TLS that an exchange with a [`Proof`] has made, by the ways that are known to make them. The
    /// controller has one of them.
    pub fn generated(&self) -> &[GeneratedKey] {
        &self.generated
    }

    fn concatenation(&self) -> u8 {
        if self.concatenates { NEW_KEY } else { NO_CONCATENATION }
    }

    /// The first message to send.
    pub fn start(&mut self) -> Vec<u8> {
        self.step = Step::Challenge;
        offer(self.entropy.transaction, self.concatenation(), &self.policy.hashes, &self.policy.groups).to_bytes()
    }

    /// The message to send after this message was received (nothing to send is empty), and what has been proven, if
    /// that is all.
    ///
    /// # Errors
    /// The reason why the authentication failed, and the message to send before the connection is closed, if the
    /// controller does not know the failure yet.
    #[expect(clippy::type_complexity, reason = "each part has a name in the first line")]
    pub fn receive(&mut self, message: &[u8]) -> Result<(Vec<u8>, Option<Proof>), (Failure, Vec<u8>)> {
        let transaction = self.entropy.transaction;
        match Message::parse(message).and_then(|message| self.next(message)) {
            Ok(next) => Ok(next),
            Err(why) if matches!(Message::parse(message), Ok(Message::Failure1 { .. })) => {
                self.step = Step::Over;
                Err((why, Vec::new()))
            }
            Err(why) => {
                self.step = Step::Over;
                Err((why, Message::Failure2 { transaction, why }.to_bytes()))
            }
        }
    }

    fn next(&mut self, message: Message) -> Result<(Vec<u8>, Option<Proof>), Failure> {
        let transaction = self.entropy.transaction;
        if let Message::Failure1 { why, .. } = message {
            return Err(why);
        }
        if message.transaction() != transaction {
            return Err(Failure::IncorrectMessage);
        }
        match (&self.step, message) {
            (Step::Challenge, Message::Challenge { hash, group, sequence, challenge, public, .. }) => {
                let hash = Hash::from_id(hash).filter(|hash| self.policy.hashes.contains(hash));
                let hash = hash.filter(|hash| challenge.len() == hash.bytes()).ok_or(Failure::HashNotUsable)?;
                let group = Group::from_id(group).filter(|group| self.policy.groups.contains(group));
                let group = group.ok_or(Failure::GroupNotUsable)?;
                self.reply(hash, group, sequence, &challenge, &public)
            }
            (Step::Success1 { hash, group, expected }, Message::Success1 { hash_bytes, response, .. }) => {
                if usize::from(hash_bytes) != hash.bytes() {
                    return Err(Failure::IncorrectPayload);
                }
                let proof = Proof { hash: *hash, group: *group, mutual: expected.is_some() };
                let answer = match (expected, response) {
                    (None, _) => Vec::new(),
                    (Some(key), Some(response)) if self.is_controller(*hash, key, &response) => {
                        Message::Success2 { transaction }.to_bytes()
                    }
                    (Some(_), _) => return Err(Failure::Failed),
                };
                self.step = Step::Over;
                Ok((answer, Some(proof)))
            }
            _ => Err(Failure::IncorrectMessage),
        }
    }

    fn reply(
        &mut self,
        hash: Hash,
        group: Group,
        sequence: u32,
        challenge: &[u8],
        public: &[u8],
    ) -> Result<(Vec<u8>, Option<Proof>), Failure> {
        let shared = group.shared(&self.entropy.exponent, public).ok_or(Failure::IncorrectPayload)?;
        let transaction = self.entropy.transaction;
        let transcript = |challenge, sequence| Transcript {
            hash,
            shared: &shared,
            challenge,
            sequence,
            transaction,
            concatenation: self.concatenation(),
            host_nqn: &self.host_nqn,
            subsystem_nqn: &self.subsystem_nqn,
        };
        let response = transcript(challenge, sequence).host(&self.secret.key_for(&self.host_nqn));
        let own = &self.entropy.challenge[..hash.bytes()];
        // The controller's proof, computed now: the shared secret need not be kept.
        let expected = self
            .controller
            .as_ref()
            .map(|secret| transcript(own, self.entropy.sequence).controller(&secret.key_for(&self.subsystem_nqn)));
        let reply = Message::Reply {
            transaction,
            sequence: if expected.is_some() { self.entropy.sequence } else { 0 },
            response,
            challenge: (expected.is_some() || self.concatenates).then(|| own.to_vec()),
            public: group.public(&self.entropy.exponent),
        };
        if self.concatenates {
            self.generated = GeneratedKey::of(hash, &shared, challenge, own);
        }
        self.step = Step::Success1 { hash, group, expected };
        Ok((reply.to_bytes(), None))
    }

    /// True if both are the same, in time that does not depend on where they differ: their HMACs are compared.
    fn is_controller(&self, hash: Hash, expected: &[u8], response: &[u8]) -> bool {
        let key = &self.entropy.challenge;
        let tag = hash.hmac(key, &[expected]);
        hash.verify(key, &[response], &tag)
    }
}
