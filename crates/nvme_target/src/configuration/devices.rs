//! Devices: their names, sizes and identities, and the memory that they may take.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Configuration;
use super::changes::{ChangedNamespace, ChangedPaths, Leaving, Paths};
use super::parts::{DeviceEntry, Namespace, Subsystem};
use crate::device::{self, Device, DeviceSpec};
use crate::identity::{self, Machine};
use crate::{DeviceInfo, Error, ErrorKind};

/// The largest number of devices: for namespaces and for the devices below them.
const MAX_DEVICES: usize = 4096;

impl Configuration {
    pub fn create_device(&mut self, spec: DeviceSpec) -> Result<DeviceInfo, Error> {
        if spec.name.is_empty() || spec.name.contains(char::is_control) {
            return Err(Error::invalid(format!("{:?} cannot be the name of a device", spec.name)));
        }
        if self.device(&spec.name).is_ok() {
            return Err(Error::new(ErrorKind::Exists, format!("a device called {:?} exists already", spec.name)));
        }
        if self.devices.len() >= MAX_DEVICES {
            return Err(Error::new(
                ErrorKind::Full,
                format!("there are {MAX_DEVICES} devices already: the most there can be"),
            ));
        }
        if let device::DeviceKind::Memory { bytes } = spec.kind {
            self.check_memory(&spec.name, bytes)?;
        }
        let mut base = None;
        if let Some(name) = spec.kind.base() {
            let entry = self.device(name)?;
            // Slices share a device with each other, and with nothing else.
            let is_slice = slice_kind(&spec);
            let other = self.stacked_on(name).find(|entry| !is_slice || !slice_kind(&entry.spec));
            if self.is_namespace(name) || other.is_some() {
                let by = other.map_or("a namespace".to_string(), |entry| format!("device {:?}", entry.spec.name));
                return Err(Error::new(
                    ErrorKind::Busy,
                    format!("device {name:?} belongs to {by}: two users would clash"),
                ));
            }
            if entry.device.shared().is_some() {
                let why = format!("device {name:?} is shared with another target: a namespace stands on it alone");
                return Err(Error::invalid(why));
            }
            // A limit holds where hosts come in: below another device it would hold nothing.
            if !entry.limit.rates().is_unlimited() {
                let busy =
                    format!("device {name:?} has a limit (bdev_set_qos_limit): end it, and limit the device on it");
                return Err(Error::new(ErrorKind::Busy, busy));
            }
            base = Some(entry);
        }
        let device = device::create(&spec, base.map(|entry| Arc::clone(&entry.device)))?;
        let uuid = self.uuid_of(&spec, &*device, base)?;
        let device_is_held = device.shared().is_none();
        let entry = Arc::new(DeviceEntry {
            uid: self.uid(),
            spec,
            device,
            uuid,
            limit: Arc::default(),
            gate: Arc::default(),
            counts_latencies: self.options.counts_latencies.into(),
            held: device_is_held.into(),
        });
        self.devices.push(Arc::clone(&entry));
        Ok(self.device_info(&entry))
    }

    /// Refuses a memory device if the machine lacks memory for it and for the existing memory devices.
    pub fn check_memory(&self, name: &str, more_bytes: u64) -> Result<(), Error> {
        let Some(available) = sys::memory::available_bytes() else { return Ok(()) };
        let promised: u64 = self.devices.iter().map(|entry| entry.device.memory_bytes()).sum();
        let left = available.saturating_sub(promised);
        if more_bytes <= left {
            return Ok(());
        }
        let mib = |bytes: u64| bytes >> 20;
        Err(Error::new(
            ErrorKind::Full,
            format!(
                "device {name}: {} MiB of memory are not there: this machine has {} MiB available, of which other memory \
                 devices may still take {} MiB; make it smaller, or serve a file",
                mib(more_bytes),
                mib(available),
                mib(promised)
            ),
        ))
    }

    /// Refuses to grow a memory device, below whatever is stacked on it, beyond the machine's memory.
    pub fn check_growth(&self, name: &str, bytes: u64) -> Result<(), Error> {
        let mut entry = self.device(name)?;
        while let Some(base) = entry.spec.kind.base() {
            entry = self.device(base)?;
        }
        match entry.spec.kind {
            device::DeviceKind::Memory { .. } => self.check_memory(name, bytes.saturating_sub(entry.device.bytes())),
            device::DeviceKind::Null { .. }
            | device::DeviceKind::File { .. }
            | device::DeviceKind::Delay { .. }
            | device::DeviceKind::Slice { .. }
            | device::DeviceKind::Faulty { .. } => Ok(()),
        }
    }

    /// The UUID of a new device: the given one, or one that no other device has.
    pub(super) fn uuid_of(
        &self,
        spec: &DeviceSpec,
        device: &dyn Device,
        base: Option<&Arc<DeviceEntry>>,
    ) -> Result<[u8; 16], Error> {
        let taken_by = |uuid: &[u8; 16]| self.devices.iter().find(|entry| entry.uuid == *uuid);
        if let Some(uuid) = spec.uuid {
            return match taken_by(&uuid) {
                Some(other) => Err(Error::new(
                    ErrorKind::Exists,
                    format!(
                        "device {:?} has the UUID of device {:?}: give another one, or none",
                        spec.name, other.spec.name
                    ),
                )),
                None => Ok(uuid),
            };
        }
        let uuid = match (base, device.identity()) {
            (Some(base), _) => identity::derived_uuid(&base.uuid, &spec.kind.layer()),
            (None, Some(content)) => Machine::this().uuid(&content),
            (None, None) => identity::random_uuid(),
        };
        // One file may be served read-only under several names: hosts that see both must not take them for two paths.
        Ok(if taken_by(&uuid).is_some() { identity::derived_uuid(&uuid, &spec.name) } else { uuid })
    }

    /// Deletes a device and its namespaces. Returns the namespaces, and the ops to wait for.
    pub fn delete_device(&mut self, name: &str) -> Result<(Vec<ChangedNamespace>, Leaving), Error> {
        let uid = self.device(name)?.uid;
        if let Some(above) = self.claims(name).first() {
            let busy = format!("device {name:?} is below device {above:?}: delete that first");
            return Err(Error::new(ErrorKind::Busy, busy));
        }
        let removed = self.namespaces_on(name);
        for subsystem in &mut self.subsystems {
            let on_it = |namespace: &Namespace| namespace.spec.device == name;
            let gone = subsystem.namespaces.values().filter(|namespace| on_it(namespace));
            let groups: Vec<u32> = gone.map(|namespace| namespace.spec.ana_group).collect();
            groups.into_iter().for_each(|group| subsystem.regroup(group));
            subsystem.namespaces.retain(|_, namespace| !on_it(namespace));
        }
        self.devices.retain(|entry| entry.spec.name != name);
        Ok((removed, Leaving::Device(uid)))
    }

    pub fn device_info(&self, entry: &DeviceEntry) -> DeviceInfo {
        let device = &entry.device;
        let mut spec = entry.spec.clone();
        if let (device::DeviceKind::Delay { latency, .. }, Some(now)) = (&mut spec.kind, device.latency()) {
            *latency = now;
        }
        DeviceInfo {
            spec,
            block_bytes: device.block_bytes(),
            blocks: device.bytes() / u64::from(device.block_bytes()),
            uuid: entry.uuid,
            read_only: device.read_only(),
            direct: device.direct(),
            rates: entry.limit.rates(),
            counts_latencies: entry.counts_latencies.load(Ordering::Relaxed),
            held: entry.is_held(),
            claimed_by: self.claims(&entry.spec.name),
        }
    }

    pub(super) fn stacked_on(&self, name: &str) -> impl Iterator<Item = &Arc<DeviceEntry>> {
        self.devices.iter().filter(move |entry| entry.spec.kind.base() == Some(name))
    }

    pub(super) fn is_namespace(&self, name: &str) -> bool {
        self.subsystems.iter().any(|s| s.namespaces.values().any(|ns| ns.spec.device == name))
    }

    /// Names of the devices stacked on `name`.
    pub fn claims(&self, name: &str) -> Vec<String> {
        self.stacked_on(name).map(|entry| entry.spec.name.clone()).collect()
    }

    /// Notes that this process has a shared device, given by its uid, or has it no more. Returns the paths.
    ///
    /// # Errors
    /// The reservations cannot be read.
    pub fn set_held(&mut self, uid: u64, held: bool) -> Result<Vec<ChangedPaths>, Error> {
        if let Some(entry) = self.devices.iter().find(|entry| entry.uid == uid) {
            entry.held.store(held, Ordering::Relaxed);
        }
        let mut changed = Vec::new();
        for subsystem in &mut self.subsystems {
            let paths = Paths { subsystem: subsystem.uid, listener: None };
            let mut audiences = Vec::new();
            for namespace in subsystem.namespaces.values_mut().filter(|it| it.entry.uid == uid) {
                namespace.open_reservations()?;
                audiences.push(namespace.spec.audience());
            }
            changed.push(ChangedPaths { paths, audiences });
        }
        Ok(changed)
    }

    /// True if hosts are to reach a device, given by its uid: a path to it is not closed. `None` if there is no such
    /// device.
    pub fn is_wanted(&self, uid: u64) -> Option<bool> {
        self.devices.iter().find(|entry| entry.uid == uid)?;
        let is_open = |subsystem: &Subsystem, group: u32| {
            let at = group as usize - 1;
            subsystem.ana.values().any(|states| states.wanted().nth(at).is_some_and(|state| state.refusal().is_none()))
        };
        Some(self.subsystems.iter().any(|subsystem| {
            let namespaces = subsystem.namespaces.values().filter(|namespace| namespace.entry.uid == uid);
            namespaces.into_iter().any(|namespace| is_open(subsystem, namespace.spec.ana_group))
        }))
    }
}

fn slice_kind(spec: &DeviceSpec) -> bool {
    matches!(spec.kind, device::DeviceKind::Slice { .. })
}
