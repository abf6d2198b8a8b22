//! Devices that several targets serve in turn (docs/decisions/one-writer.md): a thread for each follows what is asked.
//!
//! ```text
//! a path is to be open ─► wait for the lock ─► size, reservations ─► paths open ─┐
//!          ▲                                                                      ▼
//!          └── lock free ◄── last op has ended ◄── paths closed ◄── no path is to be open
//! ```

use std::sync::{Arc, Weak};
use std::time::Duration;

use nvme_target::device::Device;

use super::{Shared, State};

/// The time between looks whether the control plane is still there, and after an error.
const LOOK: Duration = Duration::from_secs(1);

/// Follows each shared device that nobody follows yet.
pub(super) fn follow_all(shared: &Arc<Shared>, state: &mut State) {
    for (uid, device) in state.target.shared_devices() {
        if state.followed.insert(uid) {
            let control = Arc::downgrade(shared);
            let follow = move || {
                while take_turn(&control, uid, &*device).is_some() {}
            };
            if let Err(error) = std::thread::Builder::new().name("nvmf-turns".into()).spawn(follow) {
                state.followed.remove(&uid);
                state.warnings.push(format!("a shared device waits for a thread: {error}"));
            }
        }
    }
}

/// Waits until paths to the device are to be open, or are not. `None` once the device or the control plane has gone.
fn until_wanted(control: &Weak<Shared>, uid: u64, wanted: bool) -> Option<()> {
    loop {
        let shared = control.upgrade()?;
        let state = shared.lock();
        if state.target.wants_device(uid)? == wanted {
            return Some(());
        }
        drop(shared.changed.wait_timeout(state, LOOK));
    }
}

/// Takes the device when paths to it are to be open, and leaves it when they are not. `None` once the device or the
/// control plane has gone.
fn take_turn(control: &Weak<Shared>, uid: u64, device: &dyn Device) -> Option<()> {
    let turn = device.shared()?;
    until_wanted(control, uid, true)?;
    let warn = |line: String| control.upgrade().map(|shared| shared.lock().warnings.push(line));
    let path = turn.path().display();
    let taken = turn.try_take().and_then(|taken| {
        if !taken {
            let who = turn.holder().map_or("another target".into(), |pid| format!("process {pid}"));
            warn(format!("{who} serves {path}: paths to it open here when that one has closed its own, or has ended"));
            turn.take()?;
        }
        Ok(())
    });
    if let Err(error) = taken {
        warn(format!("cannot lock {path}: {error}"))?;
        std::thread::sleep(LOOK);
        return Some(());
    }
    let shared = control.upgrade()?;
    let mut state = shared.lock();
    match state.target.wants_device(uid) {
        Some(true) => {}
        still_there => {
            turn.leave();
            return still_there.map(drop);
        }
    }
    if let Err(error) = state.target.device_taken(uid) {
        turn.leave();
        state.warnings.push(format!("paths to {path} stay closed: {error}"));
        drop(state);
        std::thread::sleep(LOOK);
        return Some(());
    }
    drop(state);
    drop(shared);
    until_wanted(control, uid, false)?;
    let departure = control.upgrade()?.lock().target.device_left(uid);
    departure.wait();
    turn.leave();
    Some(())
}
