//! Sentences on what the pacer of `plimsoll serve` did: what it held back and for how long, and what its window traded.

use measure::figures;
use nvme_target::{PacerDevice, PacerStats, ReactorStats};

/// The sentences: one of each device of which ops waited, then one of each reactor with a window. None if no op came.
pub fn sentences(reactors: &[ReactorStats]) -> Vec<String> {
    let admitted: u64 = reactors.iter().map(|reactor| reactor.pacer.admitted).sum();
    if admitted == 0 {
        return Vec::new();
    }
    let mut sentences: Vec<String> = devices(reactors).iter().map(device).collect();
    if sentences.is_empty() {
        sentences.push(format!("pacing held none of {} ops", figures::count(admitted as f64)));
    }
    sentences.extend(reactors.iter().filter_map(|reactor| window(&reactor.name, &reactor.pacer)));
    sentences
}

/// The devices of which ops waited, each summed over the reactors.
fn devices(reactors: &[ReactorStats]) -> Vec<PacerDevice> {
    let mut devices: Vec<PacerDevice> = Vec::new();
    for device in reactors.iter().flat_map(|reactor| &reactor.pacer.devices) {
        let Some(sum) = devices.iter_mut().find(|sum| sum.name == device.name) else {
            devices.push(device.clone());
            continue;
        };
        let waited_ns = sum.hold_ns_mean * sum.held as f64 + device.hold_ns_mean * device.held as f64;
        sum.admitted += device.admitted;
        sum.held += device.held;
        sum.hold_ns_mean = waited_ns / sum.held.max(1) as f64;
    }
    devices.retain(|device| device.held > 0);
    devices
}

fn device(device: &PacerDevice) -> String {
    format!(
        "pacing held {} of {} ops of {}, for {} on average",
        figures::percent(device.held as f64 / device.admitted.max(1) as f64),
        figures::count(device.admitted as f64),
        device.name,
        figures::nanoseconds(device.hold_ns_mean)
    )
}

/// The window of a reactor's pacer, and what its last trial said of another one.
fn window(reactor: &str, pacer: &PacerStats) -> Option<String> {
    let bytes = |bytes: u64| figures::bytes(bytes as f64);
    if pacer.held == 0 || pacer.window_bytes == u64::MAX {
        return None;
    }
    let window = format!("{reactor}: window {}", bytes(pacer.window_bytes));
    let Some(trial) = pacer.trial else {
        return Some(format!("{window}; no trial of another window has ended"));
    };
    Some(format!(
        "{window}; the last trial: {} delivers {} against {}, standard error {}",
        bytes(trial.candidate_bytes),
        figures::change(trial.gain),
        bytes(trial.window_bytes),
        figures::percent(trial.error)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reactor(window_bytes: u64, held: u64, hold_ns_mean: f64) -> ReactorStats {
        let device =
            PacerDevice { name: "Malloc0".into(), admitted: 1000, held, hold_ns_mean, ..PacerDevice::default() };
        let pacer = PacerStats { admitted: 1000, held, window_bytes, devices: vec![device], ..PacerStats::default() };
        ReactorStats { name: "reactor".into(), pacer, ..ReactorStats::default() }
    }

    #[test]
    fn reactors_that_share_a_device_are_one_sentence() {
        let mut reactors = [reactor(6 << 20, 300, 1e6), reactor(u64::MAX, 100, 2e6)];
        reactors[0].pacer.trial =
            Some(pace::Trial { window_bytes: 6 << 20, candidate_bytes: 8 << 20, gain: 0.02, error: 0.005 });
        assert_eq!(
            sentences(&reactors),
            [
                "pacing held 20 % of 2k ops of Malloc0, for 1.25 ms on average",
                "reactor: window 6 MiB; the last trial: 8 MiB delivers +2 % against 6 MiB, standard error 0.5 %",
            ]
        );
    }

    #[test]
    fn a_pacer_that_held_nothing_says_so() {
        assert_eq!(sentences(&[reactor(8 << 20, 0, 0.0)]), ["pacing held none of 1k ops"]);
        assert!(sentences(&[]).is_empty());
    }
}
