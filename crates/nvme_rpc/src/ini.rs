//! Configuration files in SPDK's old form, as releases before its JSON and the prototype of pacing took them: sections
//! of lines, each a key and its values (SPDK 19.10, etc/spdk/nvmf.conf.in and lib/conf).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::config::{Step, grouped};

/// A configuration in the new form, and the lines that a user should know about.
#[derive(Debug, PartialEq)]
pub struct Converted {
    /// The configuration as a file for `plimsoll serve -c`.
    pub configuration: Value,
    /// Lines of the old file that the new one does not have, and what to do about each.
    pub remarks: Vec<String>,
}

/// A line of a section: a key and its values.
#[derive(Debug)]
struct Entry {
    line: usize,
    key: String,
    values: Vec<String>,
}

#[derive(Debug)]
struct Section {
    line: usize,
    name: String,
    entries: Vec<Entry>,
}

/// True if the text begins as a file in the old form does: with a section of letters, which is not JSON.
pub fn is_one(text: &str) -> bool {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let name = first.and_then(|line| line.strip_prefix('[')?.strip_suffix(']'));
    name.is_some_and(|name| name.starts_with(|letter: char| letter.is_ascii_alphabetic()))
}

/// The configuration of a file in the old form, in the new one.
///
/// # Errors
/// One line that names the line of the file: it is not of the old form, or a value is not valid.
pub fn convert(text: &str) -> Result<Converted, String> {
    let sections = parse(text)?;
    let mut out = Conversion::default();
    let of_kind = |kind: &'static str| {
        sections.iter().filter(move |section| {
            let rest = section.name.get(..kind.len()).filter(|start| start.eq_ignore_ascii_case(kind));
            rest.is_some() && section.name[kind.len()..].bytes().all(|digit| digit.is_ascii_digit())
        })
    };
    let mut known = BTreeSet::new();
    type Part = fn(&mut Conversion, &Section) -> Result<(), String>;
    // Devices come before those that stand on them, and transports before the subsystems that listen on them.
    let parts: [(&str, Part); 12] = [
        ("Global", Conversion::global),
        ("Rpc", Conversion::rpc),
        ("Malloc", Conversion::malloc),
        ("Null", Conversion::null),
        ("AIO", Conversion::aio),
        ("Nvme", Conversion::nvme),
        ("Split", Conversion::split),
        ("BdevError", Conversion::error),
        ("QoS", Conversion::limits),
        ("Nvmf", Conversion::nvmf),
        ("Transport", Conversion::transport),
        ("Subsystem", Conversion::subsystem),
    ];
    for (kind, part) in parts {
        for section in of_kind(kind) {
            known.insert(section.line);
            part(&mut out, section)?;
        }
    }
    for section in sections.iter().filter(|section| !known.contains(&section.line)) {
        out.remark(section.line, format!("[{}] has no counterpart here, and is left out", section.name));
    }
    out.finish()
}

fn parse(text: &str) -> Result<Vec<Section>, String> {
    let mut sections: Vec<Section> = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let number = number + 1;
        let mut line = line.trim().to_string();
        while !line.starts_with('#') && line.ends_with('\\') {
            line.pop();
            line.push_str(lines.next().map(|(_, next)| next.trim()).unwrap_or_default());
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let name = rest.split_once(']').ok_or_else(|| format!("line {number}: the section has no ]"))?.0;
            sections.push(Section { line: number, name: name.trim().into(), entries: Vec::new() });
            continue;
        }
        let mut words = words(&line).ok_or_else(|| format!("line {number}: a quotation mark is not closed"))?;
        let Some(section) = sections.last_mut() else {
            return Err(format!("line {number}: a section ([Nvmf], [Subsystem1], ...) comes first"));
        };
        let key = words.remove(0);
        section.entries.push(Entry { line: number, key, values: words });
    }
    Ok(sections)
}

/// The words of a line; a quoted one may have blanks. `None` if a quotation is not closed.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
        };
        words.push(word.to_string());
        rest = after.trim_start();
    }
    Some(words)
}

/// A local drive of `[Nvme]`: its place on the bus, and the name that its devices begin with.
#[derive(Debug)]
struct Drive {
    name: String,
    place: String,
}

#[derive(Debug, Default)]
struct Conversion {
    steps: Vec<Step>,
    remarks: Vec<String>,
    drives: Vec<Drive>,
    /// The devices that there are.
    devices: BTreeSet<String>,
    /// Parameters of transports that older files give for all of them.
    of_all_transports: Map<String, Value>,
    transports: BTreeSet<String>,
}

/// Keys of `[Transport]`, and those that older files have in `[Nvmf]`.
const TRANSPORT: [(&str, &str); 9] = [
    ("MaxQueueDepth", "max_queue_depth"),
    ("MaxQueuesPerSession", "max_qpairs_per_ctrlr"),
    ("InCapsuleDataSize", "in_capsule_data_size"),
    ("MaxIOSize", "max_io_size"),
    ("IOUnitSize", "io_unit_size"),
    ("MaxAQDepth", "max_aq_depth"),
    ("NumSharedBuffers", "num_shared_buffers"),
    ("BufCacheSize", "buf_cache_size"),
    ("MaxSRQDepth", "max_srq_depth"),
];

impl Entry {
    fn is(&self, key: &str) -> bool {
        self.key.eq_ignore_ascii_case(key)
    }

    fn value(&self, at: usize, meaning: &str) -> Result<&str, String> {
        let missing = || format!("line {}: {} lacks {meaning}", self.line, self.key);
        self.values.get(at).map(String::as_str).ok_or_else(missing)
    }

    fn number(&self, at: usize, meaning: &str) -> Result<u64, String> {
        let text = self.value(at, meaning)?;
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number.map_err(|_| format!("line {}: {} takes a number as {meaning}, not {text:?}", self.line, self.key))
    }

    fn truth(&self) -> Result<bool, String> {
        let text = self.value(0, "Yes or No")?;
        match text.to_lowercase().as_str() {
            "yes" | "y" | "true" => Ok(true),
            "no" | "n" | "false" => Ok(false),
            _ => Err(format!("line {}: {} takes Yes or No, not {text:?}", self.line, self.key)),
        }
    }
}

impl Conversion {
    fn remark(&mut self, line: usize, text: impl AsRef<str>) {
        self.remarks.push(format!("line {line}: {}", text.as_ref()));
    }

    fn left_out(&mut self, section: &Section, entry: &Entry) {
        self.remark(
            entry.line,
            format!("{} of [{}] has no counterpart here, and is left out", entry.key, section.name),
        );
    }

    fn step(&mut self, subsystem: &str, method: &str, params: Value) {
        let params = Some(params);
        self.steps.push(Step { subsystem: subsystem.into(), method: method.into(), params });
    }

    fn device(&mut self, method: &str, name: &str, mut params: Value) {
        params["name"] = json!(name);
        self.devices.insert(name.into());
        self.step("bdev", method, params);
    }

    /// Adds the device on a local drive that this name stands for, if it is one. Returns true if the device is there.
    fn find(&mut self, name: &str) -> bool {
        if self.devices.contains(name) {
            return true;
        }
        let drive = self.drives.iter().find_map(|drive| {
            let number = name.strip_prefix(&drive.name)?.strip_prefix('n')?;
            number.parse::<u32>().ok().map(|number| (drive.place.clone(), number))
        });
        let Some((place, number)) = drive else { return false };
        // The name that udev gives to the namespace of a drive that the kernel drives.
        let filename = format!("/dev/disk/by-path/pci-{place}-nvme-{number}");
        self.device("bdev_uring_create", name, json!({ "filename": filename }));
        true
    }

    fn global(&mut self, section: &Section) -> Result<(), String> {
        for entry in &section.entries {
            match entry.is("ReactorMask") {
                true => {
                    let mask = entry.value(0, "a mask")?.to_string();
                    self.remark(entry.line, format!("ReactorMask {mask}: give `plimsoll serve` --cores instead"));
                }
                false if entry.is("Comment") || entry.is("LogFacility") => {}
                false => self.left_out(section, entry),
            }
        }
        Ok(())
    }

    fn rpc(&mut self, section: &Section) -> Result<(), String> {
        for entry in &section.entries {
            match entry.is("Enable") {
                true if entry.truth()? => {}
                true => self.remark(entry.line, "Enable No: give `plimsoll serve` --rpc-socket none instead"),
                false => self.left_out(section, entry),
            }
        }
        Ok(())
    }

    fn malloc(&mut self, section: &Section) -> Result<(), String> {
        let (mut count, mut mib, mut block) = (0, 0, 512);
        for entry in &section.entries {
            match entry.key.to_lowercase().as_str() {
                "numberofluns" => count = entry.number(0, "the number of devices")?,
                "lunsizeinmb" => mib = entry.number(0, "a size in MiB")?,
                "blocksize" => block = entry.number(0, "the bytes of a block")?,
                _ => self.left_out(section, entry),
            }
        }
        let blocks = mib.checked_mul(1 << 20).and_then(|bytes| bytes.checked_div(block));
        let blocks = blocks.ok_or_else(|| format!("line {}: [Malloc] has no valid size", section.line))?;
        for number in 0..count {
            let params = json!({ "num_blocks": blocks, "block_size": block });
            self.device("bdev_malloc_create", &format!("Malloc{number}"), params);
        }
        Ok(())
    }

    fn null(&mut self, section: &Section) -> Result<(), String> {
        for entry in &section.entries {
            if !entry.is("Dev") {
                self.left_out(section, entry);
                continue;
            }
            let (name, mib) = (entry.value(0, "a name")?.to_string(), entry.number(1, "a size in MiB")?);
            let block = if entry.values.len() > 2 { entry.number(2, "the bytes of a block")? } else { 512 };
            if entry.values.get(3).is_some_and(|metadata| metadata != "0") {
                self.remark(entry.line, format!("{name} has no metadata here"));
            }
            let blocks = mib.checked_mul(1 << 20).and_then(|bytes| bytes.checked_div(block));
            let blocks = blocks.ok_or_else(|| format!("line {}: {name} has no valid size", entry.line))?;
            self.device("bdev_null_create", &name, json!({ "num_blocks": blocks, "block_size": block }));
        }
        Ok(())
    }

    fn aio(&mut self, section: &Section) -> Result<(), String> {
        for entry in &section.entries {
            if !entry.is("AIO") {
                self.left_out(section, entry);
                continue;
            }
            let (path, name) = (entry.value(0, "a file")?, entry.value(1, "a name")?.to_string());
            let mut params = json!({ "filename": path });
            if entry.values.len() > 2 {
                params["block_size"] = json!(entry.number(2, "the bytes of a block")?);
            }
            self.device("bdev_aio_create", &name, params);
        }
        Ok(())
    }

    fn nvme(&mut self, section: &Section) -> Result<(), String> {
        for entry in &section.entries {
            if !entry.is("TransportID") {
                self.left_out(section, entry);
                continue;
            }
            let id = entry.value(0, "the address of a drive")?;
            let part = |name: &str| {
                id.split_whitespace().find_map(|part| {
                    let (key, value) = part.split_once(':')?;
                    key.eq_ignore_ascii_case(name).then(|| value.to_string())
                })
            };
            let name = entry.value(1, "a name")?.to_string();
            let is_local = part("trtype").is_some_and(|trtype| trtype.eq_ignore_ascii_case("PCIe"));
            match part("traddr").filter(|_| is_local) {
                Some(place) => {
                    self.remark(
                        entry.line,
                        format!("{name}: the kernel drives the drive at {place} (setup.sh reset gives it back)"),
                    );
                    self.drives.push(Drive { name, place });
                }
                None => self.remark(entry.line, format!("{name} is not a local drive, and is left out")),
            }
        }
        Ok(())
    }

    fn split(&mut self, section: &Section) -> Result<(), String> {
        for entry in &section.entries {
            if !entry.is("Split") {
                self.left_out(section, entry);
                continue;
            }
            let base = entry.value(0, "the name of a device")?.to_string();
            let count = entry.number(1, "the number of parts")?;
            if !self.find(&base) {
                self.remark(entry.line, format!("there is no device {base}, so its parts are left out"));
                continue;
            }
            let mut params = json!({ "base_bdev": base, "split_count": count });
            if entry.values.len() > 2 {
                params["split_size_mb"] = json!(entry.number(2, "the MiB of a part")?);
            }
            self.devices.extend((0..count.min(65_536)).map(|number| format!("{base}p{number}")));
            self.step("bdev", "bdev_split_create", params);
        }
        Ok(())
    }

    fn error(&mut self, section: &Section) -> Result<(), String> {
        for entry in &section.entries {
            let base = if entry.is("BdevError") { entry.value(0, "the name of a device")? } else { "" }.to_string();
            if base.is_empty() || !self.find(&base) {
                self.left_out(section, entry);
                continue;
            }
            self.devices.insert(format!("EE_{base}"));
            self.step("bdev", "bdev_error_create", json!({ "base_name": base }));
        }
        Ok(())
    }

    fn limits(&mut self, section: &Section) -> Result<(), String> {
        const LIMITS: [(&str, &str); 4] = [
            ("Limit_IOPS", "rw_ios_per_sec"),
            ("Limit_BPS", "rw_mbytes_per_sec"),
            ("Limit_Read_BPS", "r_mbytes_per_sec"),
            ("Limit_Write_BPS", "w_mbytes_per_sec"),
        ];
        for entry in &section.entries {
            match LIMITS.iter().find(|(key, _)| entry.is(key)) {
                Some((_, param)) => {
                    let device = entry.value(0, "the name of a device")?.to_string();
                    let mut params = json!({ "name": device });
                    params[*param] = json!(entry.number(1, "a limit")?);
                    if param.contains("mbytes") {
                        self.remark(entry.line, format!("{} is taken as MiB/s", entry.key));
                    }
                    match self.find(&device) {
                        true => self.step("bdev", "bdev_set_qos_limit", params),
                        false => self.remark(entry.line, format!("there is no device {device} to limit")),
                    }
                }
                None => self.left_out(section, entry),
            }
        }
        Ok(())
    }

    fn nvmf(&mut self, section: &Section) -> Result<(), String> {
        for entry in &section.entries {
            if entry.is("MaxSubsystems") {
                let most = entry.number(0, "a number")?;
                self.step("nvmf", "nvmf_set_max_subsystems", json!({ "max_subsystems": most }));
            } else if let Some((_, param)) = TRANSPORT.iter().find(|(key, _)| entry.is(key)) {
                self.of_all_transports.insert((*param).into(), json!(entry.number(0, "a number")?));
            } else if !["AcceptorPollRate", "ConnectionScheduler"].iter().any(|key| entry.is(key)) {
                self.left_out(section, entry);
            }
        }
        Ok(())
    }

    fn transport(&mut self, section: &Section) -> Result<(), String> {
        let mut params = Value::Object(self.of_all_transports.clone());
        for entry in &section.entries {
            if entry.is("Type") {
                params["trtype"] = json!(entry.value(0, "TCP or RDMA")?.to_uppercase());
            } else if let Some((_, param)) = TRANSPORT.iter().find(|(key, _)| entry.is(key)) {
                params[*param] = json!(entry.number(0, "a number")?);
            } else {
                self.left_out(section, entry);
            }
        }
        let trtype = params["trtype"].as_str().map(str::to_string);
        let trtype = trtype.ok_or_else(|| format!("line {}: [{}] lacks Type", section.line, section.name))?;
        if !self.transports.insert(trtype.clone()) {
            return Err(format!("line {}: there are two transports of the type {trtype}", section.line));
        }
        self.step("nvmf", "nvmf_create_transport", params);
        Ok(())
    }

    fn subsystem(&mut self, section: &Section) -> Result<(), String> {
        let first = |key: &str| section.entries.iter().find(|entry| entry.is(key));
        let nqn = first("NQN").ok_or_else(|| format!("line {}: [{}] lacks NQN", section.line, section.name))?;
        let nqn = nqn.value(0, "a name")?.to_string();
        let any = first("AllowAnyHost").map_or(Ok(false), Entry::truth)?;
        let mut params = json!({ "nqn": nqn, "allow_any_host": any });
        for (key, param) in [("SN", "serial_number"), ("MN", "model_number")] {
            if let Some(entry) = first(key) {
                params[param] = json!(entry.value(0, "a text")?);
            }
        }
        if let Some(entry) = first("MaxNamespaces") {
            params["max_namespaces"] = json!(entry.number(0, "a number")?);
        }
        self.step("nvmf", "nvmf_create_subsystem", params);
        let mut has_host = any;
        for entry in &section.entries {
            match entry.key.to_lowercase().as_str() {
                "host" => {
                    has_host = true;
                    let host = entry.value(0, "the NQN of a host")?;
                    self.step("nvmf", "nvmf_subsystem_add_host", json!({ "nqn": nqn, "host": host }));
                }
                "namespace" => {
                    let device = entry.value(0, "the name of a device")?.to_string();
                    if !self.find(&device) {
                        self.remark(entry.line, format!("there is no device {device}: its namespace is left out"));
                        continue;
                    }
                    let mut namespace = json!({ "bdev_name": device });
                    if entry.values.len() > 1 {
                        namespace["nsid"] = json!(entry.number(1, "the number of the namespace")?);
                    }
                    if let Some(uuid) = entry.values.get(2) {
                        namespace["uuid"] = json!(uuid);
                    }
                    self.step("nvmf", "nvmf_subsystem_add_ns", json!({ "nqn": nqn, "namespace": namespace }));
                }
                "nqn" | "sn" | "mn" | "maxnamespaces" | "allowanyhost" | "listen" => {}
                _ => self.left_out(section, entry),
            }
        }
        if !has_host {
            self.remark(section.line, format!("[{}] lists no Host, so no host may connect", section.name));
        }
        // After the namespaces, so that no host finds some of them.
        for entry in section.entries.iter().filter(|entry| entry.is("Listen")) {
            let trtype = entry.value(0, "TCP or RDMA")?.to_uppercase();
            let address = entry.value(1, "an address")?;
            let (ip, port) = match address.rsplit_once(':') {
                Some((ip, port)) if !ip.contains(':') || ip.ends_with(']') => (ip, port),
                _ => (address, "4420"),
            };
            if self.transports.insert(trtype.clone()) {
                let mut params = Value::Object(self.of_all_transports.clone());
                params["trtype"] = json!(trtype);
                self.step("nvmf", "nvmf_create_transport", params);
            }
            let ip = ip.trim_start_matches('[').trim_end_matches(']');
            let to = json!({ "trtype": trtype, "traddr": ip, "trsvcid": port });
            self.step("nvmf", "nvmf_subsystem_add_listener", json!({ "nqn": nqn, "listen_address": to }));
        }
        Ok(())
    }

    fn finish(self) -> Result<Converted, String> {
        if !self.steps.iter().any(|step| step.method == "nvmf_create_subsystem") {
            return Err("there is no section [Subsystem1]: is it a configuration of an NVMe target?".into());
        }
        Ok(Converted { configuration: json!({ "subsystems": grouped(&self.steps) }), remarks: self.remarks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The parts of SPDK's own example, and of the prototype's configurations.
    const OLD: &str = "\
# a target
[Global]
  ReactorMask 0xF
[Malloc]
  NumberOfLuns 2
  LunSizeInMB 64
  BlockSize 4096
[Null]
  Dev Null0 8192 4096
[AIO]
  AIO \"/var/tmp/a disk\" AIO0 512
[Nvme]
  TransportID \"trtype:PCIe traddr:0000:04:00.0\" Nvme0
  RetryCount 4
[Split]
  Split Null0 2
[QoS]
  Limit_BPS Malloc0 100
[Nvmf]
  AcceptorPollRate 10000
[Transport1]
  Type tcp
  MaxIOSize 131072
  NumSharedBuffers \\
    96
[Subsystem1]
  NQN nqn.2016-06.io.spdk:cnode1
  Listen TCP 127.0.0.1:4420
  Listen RDMA [::1]:4421
  AllowAnyHost No
  Host nqn.2016-06.io.spdk:init
  SN SPDK00000000000001
  MN \"SPDK Controller1\"
  MaxNamespaces 20
  Namespace Malloc0 1
  Namespace Null0p1
  Namespace Nvme0n1 7
  Namespace Gone
[iSCSI]
  MaxSessions 1
";

    #[test]
    fn an_old_file_becomes_a_new_one() {
        let Converted { configuration, remarks } = convert(OLD).expect("it is one");
        let steps = super::super::config::parse(&configuration.to_string()).expect("a configuration");
        let find = |method: &str| -> Vec<&Value> {
            steps.iter().filter(|step| step.method == method).filter_map(|step| step.params.as_ref()).collect()
        };
        assert_eq!(
            find("bdev_malloc_create"),
            [
                &json!({ "name": "Malloc0", "num_blocks": 16384, "block_size": 4096 }),
                &json!({ "name": "Malloc1", "num_blocks": 16384, "block_size": 4096 })
            ]
        );
        assert_eq!(
            find("bdev_null_create"),
            [&json!({ "name": "Null0", "num_blocks": 2_097_152, "block_size": 4096 })]
        );
        let aio = json!({ "name": "AIO0", "filename": "/var/tmp/a disk", "block_size": 512 });
        assert_eq!(find("bdev_aio_create"), [&aio]);
        let drive = json!({ "name": "Nvme0n1", "filename": "/dev/disk/by-path/pci-0000:04:00.0-nvme-1" });
        assert_eq!(find("bdev_uring_create"), [&drive]);
        assert_eq!(find("bdev_split_create"), [&json!({ "base_bdev": "Null0", "split_count": 2 })]);
        assert_eq!(find("bdev_set_qos_limit"), [&json!({ "name": "Malloc0", "rw_mbytes_per_sec": 100 })]);
        assert_eq!(
            find("nvmf_create_transport"),
            [
                &json!({ "trtype": "TCP", "max_io_size": 131_072, "num_shared_buffers": 96 }),
                &json!({ "trtype": "RDMA" })
            ]
        );
        let nqn = "nqn.2016-06.io.spdk:cnode1";
        let subsystem = json!({
            "nqn": nqn, "allow_any_host": false, "serial_number": "SPDK00000000000001",
            "model_number": "SPDK Controller1", "max_namespaces": 20
        });
        assert_eq!(find("nvmf_create_subsystem"), [&subsystem]);
        let namespaces: Vec<&Value> = find("nvmf_subsystem_add_ns").iter().map(|params| &params["namespace"]).collect();
        assert_eq!(
            namespaces,
            [
                &json!({ "bdev_name": "Malloc0", "nsid": 1 }),
                &json!({ "bdev_name": "Null0p1" }),
                &json!({ "bdev_name": "Nvme0n1", "nsid": 7 })
            ]
        );
        let listeners: Vec<&Value> =
            find("nvmf_subsystem_add_listener").iter().map(|params| &params["listen_address"]).collect();
        assert_eq!(
            listeners,
            [
                &json!({ "trtype": "TCP", "traddr": "127.0.0.1", "trsvcid": "4420" }),
                &json!({ "trtype": "RDMA", "traddr": "::1", "trsvcid": "4421" })
            ]
        );
        for part in [
            "line 3: ReactorMask 0xF",
            "line 14: RetryCount of [Nvme] has no counterpart",
            "there is no device Gone: its namespace is left out",
            "[iSCSI] has no counterpart",
        ] {
            assert!(remarks.iter().any(|remark| remark.contains(part)), "{part}: {remarks:#?}");
        }
    }

    #[test]
    fn an_error_names_the_line() {
        for (text, message) in [
            ("Type TCP", "line 1: a section ([Nvmf], [Subsystem1], ...) comes first"),
            ("[Nvmf", "line 1: the section has no ]"),
            ("[Null]\nDev Null0 big", "line 2: Dev takes a number as a size in MiB, not \"big\""),
            ("[AIO]\nAIO \"/x", "line 2: a quotation mark is not closed"),
            ("[Subsystem1]\nSN x", "line 1: [Subsystem1] lacks NQN"),
            ("[Transport]\nMaxIOSize 1", "line 1: [Transport] lacks Type"),
            ("[Null]\nDev a 1 0", "line 2: a has no valid size"),
            ("[Malloc]\n", "there is no section [Subsystem1]: is it a configuration of an NVMe target?"),
        ] {
            assert_eq!(convert(text).expect_err(text), message);
        }
        assert!(is_one("# x\n\n [Global]\n") && !is_one("[\n{}]") && !is_one("{}") && !is_one("[[1]]"));
    }

    proptest! {
        #[test]
        fn any_text_is_converted_or_refused(text in r#"(\[(Null|Malloc|Subsystem1|Transport|Split|AIO|Nvme|x)?\]?\n|Dev |NQN |Listen |Namespace |Type |["\\#:0-9a-z \n]){0,40}"#) {
            let _ = convert(&text);
        }
    }
}
