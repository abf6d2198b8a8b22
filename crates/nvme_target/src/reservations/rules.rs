//! The rules of reservations (Base specification 2.0, section 8.19): the registrants of one namespace, the reservation
//! that they hold, and what each command makes of both. Nothing here waits, sends or stores.

use nvme::spec::Status;
use nvme::spec::reservation::{
    AcquireAction, HostId, Notice, RegisterAction, ReleaseAction, ReservationCommand, ReservationType,
};

/// The most registrants of a namespace: hosts that make up identifiers must not fill the memory.
pub(crate) const MOST_REGISTRANTS: usize = 256;

/// The need of an I/O command, by which a reservation admits it (section 8.19, figure 402).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Read,
    Write,
}

/// A host that has registered a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registrant {
    pub host: HostId,
    pub key: u64,
}

/// A reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub kind: ReservationType,
    /// The host that holds the reservation; without meaning if all registrants hold it.
    pub holder: HostId,
}

/// The reservations of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Counts commands that changed registrations; wraps.
    pub generation: u32,
    /// True if registrants and reservation persist through power loss.
    pub persists: bool,
    pub registrants: Vec<Registrant>,
    pub reservation: Option<Reservation>,
}

/// The consequences of a command besides the new state.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Consequences {
    /// Hosts to be told, and of what.
    pub notices: Vec<(HostId, Notice)>,
    /// Hosts whose commands on the namespace are to be aborted.
    pub aborted: Vec<HostId>,
}

impl Rules {
    /// True if a host may carry out a command with that need.
    pub fn permit(&self, host: &HostId, need: Need) -> bool {
        let Some(Reservation { kind, .. }) = self.reservation else { return true };
        let has_rights = if kind.is_of_one_host() { self.is_holder(host) } else { self.key_of(host).is_some() };
        has_rights || need == Need::Read && kind.lets_all_read()
    }

    /// The key that a host has registered.
    pub fn key_of(&self, host: &HostId) -> Option<u64> {
        self.registrants.iter().find(|registrant| registrant.host == *host).map(|registrant| registrant.key)
    }

    /// True if a host holds the reservation, alone or with all other registrants.
    pub fn is_holder(&self, host: &HostId) -> bool {
        self.reservation.is_some_and(|held| match held.kind.is_held_by_all() {
            true => self.key_of(host).is_some(),
            false => held.holder == *host,
        })
    }

    /// Carries a command of a host out.
    ///
    /// # Errors
    /// Reservation Conflict if the rules forbid the command, Invalid Field for values that make no sense, Internal
    /// Error beyond [`MOST_REGISTRANTS`]. Nothing has changed then.
    pub fn carry_out(&mut self, host: &HostId, command: &ReservationCommand) -> Result<Consequences, Status> {
        let conflict = Err(Status::RESERVATION_CONFLICT.do_not_retry());
        match *command {
            ReservationCommand::Register { action, ignores_key, persists, current, new } => {
                let done = self.register(host, action, ignores_key, current, new)?;
                self.persists = persists.unwrap_or(self.persists);
                Ok(done)
            }
            ReservationCommand::Acquire { current, .. } | ReservationCommand::Release { current, .. }
                if self.key_of(host) != Some(current) =>
            {
                conflict
            }
            ReservationCommand::Acquire { action, kind, preempted, .. } => match action {
                AcquireAction::Acquire => self.acquire(host, kind),
                AcquireAction::Preempt => {
                    Ok(Consequences { aborted: Vec::new(), ..self.preempt(host, kind, preempted)? })
                }
                AcquireAction::PreemptAndAbort => self.preempt(host, kind, preempted),
            },
            ReservationCommand::Release { action: ReleaseAction::Release, kind, .. } => self.release(host, kind),
            ReservationCommand::Release { action: ReleaseAction::Clear, .. } => {
                let others = self.registrants.iter().filter(|registrant| registrant.host != *host);
                let notices = others.map(|other| (other.host, Notice::ReservationPreempted)).collect();
                self.registrants.clear();
                self.reservation = None;
                self.generation = self.generation.wrapping_add(1);
                Ok(Consequences { notices, ..Consequences::default() })
            }
        }
    }

    /// Sections 8.19.3 (registering) and 8.19.5 (unregistering).
    fn register(
        &mut self,
        host: &HostId,
        action: RegisterAction,
        ignores_key: bool,
        current: u64,
        new: u64,
    ) -> Result<Consequences, Status> {
        let conflict = Status::RESERVATION_CONFLICT.do_not_retry();
        let known = self.key_of(host);
        let mut done = Consequences::default();
        match action {
            RegisterAction::Register | RegisterAction::Replace if new == 0 => {
                // No key has the value 0: Preempt names all registrants by it.
                return Err(Status::INVALID_FIELD.do_not_retry());
            }
            RegisterAction::Register if known.is_some_and(|key| key != new) => return Err(conflict),
            RegisterAction::Replace if !ignores_key && known != Some(current) => return Err(conflict),
            RegisterAction::Register | RegisterAction::Replace => {
                let has_room = self.registrants.len() < MOST_REGISTRANTS;
                match self.registrants.iter_mut().find(|registrant| registrant.host == *host) {
                    Some(registrant) => registrant.key = new,
                    None if has_room => self.registrants.push(Registrant { host: *host, key: new }),
                    None => return Err(Status::INTERNAL_ERROR.do_not_retry()),
                }
            }
            RegisterAction::Unregister if known.is_none() || !ignores_key && known != Some(current) => {
                return Err(conflict);
            }
            RegisterAction::Unregister => done.notices = self.remove(&[*host]),
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(done)
    }

    /// Removes registrants; the reservation goes with its last holder. Returns the notices of its release.
    fn remove(&mut self, hosts: &[HostId]) -> Vec<(HostId, Notice)> {
        self.registrants.retain(|registrant| !hosts.contains(&registrant.host));
        let Some(held) = self.reservation else { return Vec::new() };
        let stays = match held.kind.is_held_by_all() {
            true => !self.registrants.is_empty(),
            false => !hosts.contains(&held.holder),
        };
        if stays {
            return Vec::new();
        }
        self.reservation = None;
        if held.kind.is_of_one_host() { Vec::new() } else { self.released(None) }
    }

    /// Notices that the reservation was released, for all registrants but one.
    fn released(&self, but: Option<&HostId>) -> Vec<(HostId, Notice)> {
        let others = self.registrants.iter().filter(|registrant| but != Some(&registrant.host));
        others.map(|other| (other.host, Notice::ReservationReleased)).collect()
    }

    /// Section 8.19.4.
    fn acquire(&mut self, host: &HostId, kind: ReservationType) -> Result<Consequences, Status> {
        match self.reservation {
            None => self.reservation = Some(Reservation { kind, holder: *host }),
            Some(held) if held.kind == kind && self.is_holder(host) => {}
            Some(_) => return Err(Status::RESERVATION_CONFLICT.do_not_retry()),
        }
        Ok(Consequences::default())
    }

    /// Section 8.19.7. The hosts of the consequences that are to be aborted are the registrants that the host removed.
    fn preempt(&mut self, host: &HostId, kind: ReservationType, preempted: u64) -> Result<Consequences, Status> {
        let before = self.reservation;
        let all_hold = before.is_some_and(|held| held.kind.is_held_by_all());
        if preempted == 0 && !all_hold {
            // Only a reservation that all registrants hold can be preempted from all of them.
            return Err(Status::INVALID_FIELD.do_not_retry());
        }
        let named = |registrant: &&Registrant| preempted == 0 || registrant.key == preempted;
        let mut removed: Vec<HostId> = self.registrants.iter().filter(named).map(|it| it.host).collect();
        if removed.is_empty() {
            return Err(Status::RESERVATION_CONFLICT.do_not_retry());
        }
        let takes_over = match before {
            Some(held) if !all_hold => self.key_of(&held.holder) == Some(preempted),
            _ => preempted == 0,
        };
        let mut notices = Vec::new();
        if takes_over {
            // The host stays a registrant, even if the key is its own.
            removed.retain(|other| other != host);
            self.registrants.retain(|registrant| !removed.contains(&registrant.host));
            self.reservation = Some(Reservation { kind, holder: *host });
            if before.is_some_and(|before| before.kind != kind) {
                notices = self.released(Some(host));
            }
        } else {
            notices = self.remove(&removed);
            removed.retain(|other| other != host);
        }
        notices.extend(removed.iter().map(|other| (*other, Notice::RegistrationPreempted)));
        self.generation = self.generation.wrapping_add(1);
        Ok(Consequences { notices, aborted: removed })
    }

    /// Section 8.19.6.
    fn release(&mut self, host: &HostId, kind: u8) -> Result<Consequences, Status> {
        let Some(held) = self.reservation.filter(|_| self.is_holder(host)) else {
            return Ok(Consequences::default()); // a registrant that holds nothing may release it
        };
        if held.kind as u8 != kind {
            return Err(Status::INVALID_FIELD.do_not_retry());
        }
        self.reservation = None;
        let notices = if held.kind.is_of_one_host() { Vec::new() } else { self.released(Some(host)) };
        Ok(Consequences { notices, ..Consequences::default() })
    }
}
