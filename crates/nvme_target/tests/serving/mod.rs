//! The subsystem that tests of a target serve, whichever transport their hosts come on.

use nvme_target::device::{DeviceKind, DeviceSpec};
use nvme_target::journal::Level;
use nvme_target::{NamespaceSpec, Options, SubsystemSpec, Target};

pub const NQN: &str = "nqn.2016-06.io.spdk:cnode1";

/// A target with one subsystem, which any host may use. The devices that no other device lies on are its namespaces 1,
/// 2, ...
pub fn target(options: Options, devices: &[(&str, DeviceKind)]) -> Target {
    let target = Target::start(options).unwrap();
    target.create_subsystem(SubsystemSpec { allow_any_host: true, ..SubsystemSpec::new(NQN) }).unwrap();
    let lower: Vec<&str> = devices.iter().filter_map(|(_, kind)| kind.base()).collect();
    for (name, kind) in devices {
        let spec = DeviceSpec { name: name.to_string(), block_bytes: None, uuid: None, kind: kind.clone() };
        target.create_device(spec).unwrap();
        if !lower.contains(name) {
            target.add_namespace(NQN, NamespaceSpec::new(*name)).unwrap();
        }
    }
    target
}

/// The messages of warnings in the log since the last call.
#[allow(dead_code)] // not every test looks
pub fn warnings(target: &Target) -> Vec<String> {
    let lines = target.journal().take().into_iter();
    lines.filter(|line| line.level == Level::Warning).map(|line| line.message).collect()
}
