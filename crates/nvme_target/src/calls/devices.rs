//! Calls about devices: making, resizing, limiting and counting them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::configuration::Leaving;
use crate::device::{Device, DeviceSpec, Fault, Latency};
use crate::mailbox::Message;
use crate::{Departure, DeviceInfo, Error, StatsChange, Target};

impl Target {
    /// Creates a device.
    ///
    /// # Errors
    /// `Exists`, `NotFound` (the base), `Busy` (the base belongs to a namespace or is claimed whole), `Invalid` sizes,
    /// `System`, `Full`: more memory than the machine has left, or too many devices.
    pub fn create_device(&self, spec: DeviceSpec) -> Result<DeviceInfo, Error> {
        self.change(|configuration| configuration.create_device(spec))
    }

    /// Creates all of the devices, or none of them.
    ///
    /// # Errors
    /// The error of the first device that cannot be created, as from [`Target::create_device`].
    pub fn create_devices(&self, specs: impl Iterator<Item = DeviceSpec>) -> Result<Vec<DeviceInfo>, Error> {
        self.change(|configuration| specs.map(|spec| configuration.create_device(spec)).collect())
    }

    /// Deletes a device. Namespaces on it are removed first, as by [`Target::remove_namespace`]. Returns the ops that
    /// the device still has; a faulty device ends those that would never end.
    ///
    /// # Errors
    /// `NotFound`; `Busy` while another device is stacked on it.
    pub fn delete_device(&self, name: &str) -> Result<Departure, Error> {
        let entry = Arc::clone(self.shared.configuration().device(name)?);
        let (removed, leaving) = self.change(|configuration| configuration.delete_device(name))?;
        entry.device.set_faults(&[]);
        self.namespaces_changed(&removed);
        Ok(self.departure(leaving))
    }

    /// Changes the capacity; hosts are told that the namespace changed. For files `bytes` of `None` takes up the file's
    /// present size, and a number sets it.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for sizes that are not a whole number of blocks, and for slices; `System`.
    pub fn resize_device(&self, name: &str, bytes: Option<u64>) -> Result<DeviceInfo, Error> {
        let configuration = self.shared.configuration();
        let entry = configuration.device(name)?;
        if let Some(bytes) = bytes
            && (bytes == 0 || !bytes.is_multiple_of(u64::from(entry.device.block_bytes())) || bytes > 1 << 60)
        {
            let block = entry.device.block_bytes();
            return Err(Error::invalid(format!("device {name}: {bytes} bytes are not whole blocks of {block} bytes")));
        }
        if let Some(bytes) = bytes {
            configuration.check_growth(name, bytes)?;
        }
        entry.device.resize(bytes)?;
        let (info, changed) = (configuration.device_info(entry), configuration.namespaces_on(name));
        drop(configuration);
        self.namespaces_changed(&changed);
        Ok(info)
    }

    /// Changes the latencies of a delay device, for ops that arrive from now on.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if the device is of another kind.
    pub fn set_latency(&self, name: &str, latency: Latency) -> Result<(), Error> {
        let configuration = self.shared.configuration();
        match configuration.device(name)?.device.set_latency(latency) {
            true => Ok(()),
            false => Err(Error::invalid(format!("device {name} is not a delay device"))),
        }
    }

    /// Replaces the faults of a faulty device; an empty list clears them, and ends the ops that never end.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if the device is of another kind.
    pub fn set_faults(&self, name: &str, faults: &[Fault]) -> Result<(), Error> {
        let configuration = self.shared.configuration();
        if !configuration.device(name)?.device.set_faults(faults) {
            return Err(Error::invalid(format!("device {name} injects no faults: stack a faulty device on it")));
        }
        // Reactors look at their devices when a message comes.
        self.shared.ask_all(|done| Message::Configure(Arc::clone(&configuration), done));
        Ok(())
    }

    /// Limits what hosts do with a device, on all reactors together; rates without a limit end the limit.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn set_rates(&self, name: &str, rates: pace::Rates) -> Result<(), Error> {
        let configuration = self.shared.configuration();
        configuration.device(name)?.limit.set(rates);
        // Reactors look at what they hold when a message comes.
        self.shared.ask_all(|done| Message::Configure(Arc::clone(&configuration), done));
        Ok(())
    }

    /// Changes the counters of a device, or of all devices.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn change_stats(&self, name: Option<&str>, change: StatsChange) -> Result<(), Error> {
        let configuration = self.shared.configuration();
        let devices: Arc<[u64]> = match name {
            Some(name) => [configuration.device(name)?.uid].into(),
            None => configuration.devices.iter().map(|entry| entry.uid).collect(),
        };
        if let StatsChange::CountLatencies(counts) = change {
            let changed = configuration.devices.iter().filter(|entry| devices.contains(&entry.uid));
            changed.for_each(|entry| entry.counts_latencies.store(counts, Ordering::Relaxed));
        }
        self.shared.ask_all(|done| Message::ChangeStats(Arc::clone(&devices), change, done));
        Ok(())
    }

    /// All devices in order of creation.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        let configuration = self.shared.configuration();
        configuration.devices.iter().map(|entry| configuration.device_info(entry)).collect()
    }

    /// The devices that are shared with other processes, by uid.
    pub fn shared_devices(&self) -> Vec<(u64, Arc<dyn Device>)> {
        let configuration = self.shared.configuration();
        let shared = configuration.devices.iter().filter(|entry| entry.device.shared().is_some());
        shared.map(|entry| (entry.uid, Arc::clone(&entry.device))).collect()
    }

    /// True if hosts are to reach a shared device; `None` if the device is not there any more.
    pub fn wants_device(&self, uid: u64) -> Option<bool> {
        self.shared.configuration().is_wanted(uid)
    }

    /// Opens the paths to a shared device that this process has taken: with its present size and reservations.
    ///
    /// # Errors
    /// The size or the reservations cannot be read.
    pub fn device_taken(&self, uid: u64) -> Result<(), Error> {
        let entry = self.shared.configuration().devices.iter().find(|entry| entry.uid == uid).map(Arc::clone);
        let Some(entry) = entry else { return Ok(()) };
        entry.device.resize(None)?;
        let changed = self.change(|configuration| configuration.set_held(uid, true)).inspect_err(|_| {
            entry.held.store(false, Ordering::Relaxed);
        })?;
        let namespaces = self.shared.configuration().namespaces_on(&entry.spec.name);
        self.namespaces_changed(&namespaces);
        changed.into_iter().for_each(|paths| drop(self.paths_changed(paths)));
        Ok(())
    }

    /// Closes the paths to a shared device. Returns the ops that the device still has.
    pub fn device_left(&self, uid: u64) -> Departure {
        match self.change(|configuration| configuration.set_held(uid, false)) {
            Ok(changed) => changed.into_iter().for_each(|paths| drop(self.paths_changed(paths))),
            Err(error) => self.shared.warn(format!("a shared device: {error}")),
        }
        self.departure(Leaving::Device(uid))
    }
}
