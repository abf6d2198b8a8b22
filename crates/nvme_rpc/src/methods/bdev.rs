//! Methods about devices, under the names that SPDK gives its block devices.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nvme::uuid;
use nvme_target::device::{DeviceKind, DeviceSpec, Effect, Fault, FaultOn, Latency};
use nvme_target::{DeviceInfo, DeviceStats, GRANULARITY, StatsChange};
use pace::Rates;
use serde_json::{Map, Value, json};

use super::{Method, method, only, refusal, uuid};
use crate::jsonrpc::{Outcome, RpcError};
use crate::params::{Param, ParamKind, Params, U32, U64};
use crate::state::State;

const NAME: Param = Param::required("name", ParamKind::Text, "name of the device");
const UUID: Param =
    Param::optional("uuid", ParamKind::Text, "random; save_config keeps it", "UUID of namespaces on the device");
const FILE_UUID: Param = Param::optional(
    "uuid",
    ParamKind::Text,
    "derived from the machine and the file",
    "UUID of namespaces on the device",
);
const STACKED_UUID: Param = Param::optional(
    "uuid",
    ParamKind::Text,
    "derived from the UUID of the device below",
    "UUID of namespaces on the device",
);
const BLOCKS: Param = Param::required("num_blocks", U64, "capacity in blocks");
const BLOCK_SIZE: Param = Param::required("block_size", U32, "bytes of a block: a power of two, 512 to 65536");
const FILENAME: Param = Param::required("filename", ParamKind::Text, "path of a regular file or block device");
const FILE_BLOCK_SIZE: Param = Param::optional(
    "block_size",
    U32,
    "the block size of the file, or 512",
    "bytes of a block: a power of two, 512 to 65536",
);
const CREATE_SIZE: Param = Param::optional(
    "create_size",
    U64,
    "the file must exist",
    "size in bytes of a file to create if none exists (SPDK lacks this)",
);
const BASE: Param = Param::required("base_bdev_name", ParamKind::Text, "name of the device to build on");
/// Hints to hosts: a device has none.
const NO_HINTS: [Param; 5] = [
    Param::only("preferred_write_granularity", U32, "0", "the target gives hosts no hints"),
    Param::only("preferred_write_alignment", U32, "0", "the target gives hosts no hints"),
    Param::only("optimal_write_size", U32, "0", "the target gives hosts no hints"),
    Param::only("preferred_unmap_granularity", U32, "0", "the target gives hosts no hints"),
    Param::only("preferred_unmap_alignment", U32, "0", "the target gives hosts no hints"),
];
const NO_METADATA: [Param; 5] = [
    Param::only("md_size", U32, "0", "there is no metadata"),
    Param::only("dif_type", ParamKind::Number(3), "0", "there is no protection information"),
    Param::ignored("dif_is_head_of_md", ParamKind::Bool, "there is no metadata"),
    Param::ignored("dif_pi_format", ParamKind::Number(2), "there is no metadata"),
    Param::optional("physical_block_size", U32, "the block size", "must be the block size"),
];
const UNCHANGED: &str = "as it is; at first any";
const RESETS: &[&str] = &["all", "maxmin", "error", "none"];
const RESET_MODES: &str = "all counters, the longest latencies, the errors, or nothing";
const SHARED: Param = Param::optional(
    "shared",
    ParamKind::Bool,
    "false",
    "serve the file in turn with other targets: paths to it are open in the target that has its lock",
);
const FILE_BLOCK_KINDS: [&str; 2] = ["bdev_aio_create", "bdev_uring_create"];

/// The methods of this module.
pub static METHODS: &[Method] = &[
    method(
        "bdev_get_bdevs",
        "List devices",
        &[
            Param::optional("name", ParamKind::Text, "all", "name of the device to list"),
            Param::optional("timeout", U64, "0", "milliseconds to wait for the device of that name, at most an hour"),
        ],
        "an array of devices with block_size, num_blocks, uuid",
        get_bdevs,
    ),
    method(
        "bdev_get_iostat",
        "Show the counters of each device",
        &[
            Param::optional("name", ParamKind::Text, "all", "name of the device to list"),
            Param::optional("names", ParamKind::Texts, "all", "devices to list"),
            Param::only(
                "per_channel",
                ParamKind::Bool,
                "false",
                "counters are sums over reactors; nvmf_get_stats lists each reactor",
            ),
            Param::optional("reset_mode", ParamKind::OneOf(RESETS), "none", RESET_MODES),
        ],
        "tick_rate (1/s), ticks, bdevs with bytes, operations and latencies in ticks",
        get_iostat,
    ),
    method(
        "bdev_null_create",
        "Create a device that reads as zeros and forgets writes",
        &[
            NAME,
            BLOCKS,
            BLOCK_SIZE,
            UUID,
            NO_METADATA[0],
            NO_METADATA[1],
            NO_METADATA[2],
            NO_METADATA[3],
            NO_METADATA[4],
            NO_HINTS[0],
            NO_HINTS[1],
            NO_HINTS[2],
            NO_HINTS[3],
            NO_HINTS[4],
        ],
        "the name of the device",
        null_create,
    ),
    method("bdev_null_delete", "Delete a null device and its namespaces", &[NAME], "true", |s, p| {
        delete(s, p, &["bdev_null_create"])
    }),
    method(
        "bdev_null_resize",
        "Change the capacity of a null device, and notify hosts",
        &[NAME, Param::required("new_size", U64, "capacity in MiB")],
        "true",
        null_resize,
    ),
    method(
        "bdev_malloc_create",
        "Create a device in memory; the target allocates the blocks that hosts write",
        &[
            Param::optional("name", ParamKind::Text, "Malloc and the first free number", "name of the device"),
            BLOCKS,
            BLOCK_SIZE,
            UUID,
            NO_METADATA[0],
            NO_METADATA[1],
            NO_METADATA[2],
            NO_METADATA[3],
            NO_METADATA[4],
            Param::only("optimal_io_boundary", U32, "0", "there is no boundary"),
            Param::only(
                "numa_id",
                ParamKind::Integer,
                "-1",
                "the thread that writes first allocates memory on its NUMA node",
            ),
            Param::ignored("md_interleave", ParamKind::Bool, "there is no metadata"),
        ],
        "the name of the device",
        malloc_create,
    ),
    method("bdev_malloc_delete", "Delete a memory device with its content and namespaces", &[NAME], "true", |s, p| {
        delete(s, p, &["bdev_malloc_create"])
    }),
    method(
        "bdev_aio_create",
        "Create a device on a file or block device; uses io_uring, as bdev_uring_create does",
        &[
            NAME,
            FILENAME,
            FILE_BLOCK_SIZE,
            FILE_UUID,
            CREATE_SIZE,
            SHARED,
            Param::optional("readonly", ParamKind::Bool, "false", "refuse writes"),
            Param::only("nowait", ParamKind::Bool, "false", "the answer comes when the device is ready"),
            Param::optional(
                "fallocate",
                ParamKind::Bool,
                "true, where SPDK has false",
                "deallocate what hosts deallocate; false keeps every block of the file allocated",
            ),
        ],
        "the name of the device",
        |s, p| file_create(s, p, "bdev_aio_create"),
    ),
    method("bdev_aio_rescan", "Adopt the present size of the file, and notify hosts", &[NAME], "true", rescan),
    method("bdev_aio_delete", "Delete the device and its namespaces, and keep the file", &[NAME], "true", |s, p| {
        delete(s, p, &FILE_BLOCK_KINDS)
    }),
    method(
        "bdev_uring_create",
        "Create a device on a file or block device, through io_uring with O_DIRECT",
        &[NAME, FILENAME, FILE_BLOCK_SIZE, FILE_UUID, CREATE_SIZE, SHARED],
        "the name of the device",
        |s, p| file_create(s, p, "bdev_uring_create"),
    ),
    method("bdev_uring_rescan", "Adopt the present size of the file, and notify hosts", &[NAME], "true", rescan),
    method("bdev_uring_delete", "Delete the device and its namespaces, and keep the file", &[NAME], "true", |s, p| {
        delete(s, p, &FILE_BLOCK_KINDS)
    }),
    method(
        "bdev_delay_create",
        "Create a device that delays the completions of another device",
        &[
            NAME,
            BASE,
            STACKED_UUID,
            Param::required("avg_read_latency", U64, "microseconds added to 99 reads of 100"),
            Param::required("p99_read_latency", U64, "microseconds added to one read of 100"),
            Param::required("avg_write_latency", U64, "microseconds added to 99 writes of 100"),
            Param::required("p99_write_latency", U64, "microseconds added to one write of 100"),
        ],
        "the name of the device",
        delay_create,
    ),
    method(
        "bdev_delay_update_latency",
        "Change one latency of a delay device, for later I/O",
        &[
            Param::required("delay_bdev_name", ParamKind::Text, "name of the delay device"),
            Param::required("latency_type", ParamKind::OneOf(&LATENCIES), "the latency to change"),
            Param::required("latency_us", U64, "microseconds"),
        ],
        "true",
        delay_update,
    ),
    method(
        "bdev_delay_delete",
        "Delete a delay device and its namespaces, and keep the device below",
        &[NAME],
        "true",
        |s, p| delete(s, p, &["bdev_delay_create"]),
    ),
    method(
        "bdev_split_create",
        "Divide a device NAME into equal parts NAMEp0, NAMEp1 and so on",
        &[
            Param::required("base_bdev", ParamKind::Text, "name of the device to build on"),
            Param::required("split_count", U32, "number of parts"),
            Param::optional("split_size_mb", U64, "0: divide the whole device", "MiB of each part"),
            Param::optional("split_blocks", U64, "0: as split_size_mb says", "blocks of each part (SPDK lacks this)"),
        ],
        "the names of the parts",
        split_create,
    ),
    method(
        "bdev_split_delete",
        "Delete the parts of a device and their namespaces, and keep the device",
        &[Param::required("base_bdev", ParamKind::Text, "name of the device to build on")],
        "true",
        split_delete,
    ),
    method(
        "bdev_error_create",
        "Create a device EE_NAME on a device NAME, for injected errors",
        &[Param::required("base_name", ParamKind::Text, "name of the device to build on"), STACKED_UUID],
        "true",
        error_create,
    ),
    method(
        "bdev_error_delete",
        "Delete an error device and its namespaces, and keep the device below",
        &[NAME],
        "true",
        |s, p| delete(s, p, &["bdev_error_create"]),
    ),
    method(
        "bdev_set_qos_limit",
        "Limit what hosts do with a device, reads and writes alike on all reactors together",
        &[
            NAME,
            Param::optional("rw_ios_per_sec", U64, UNCHANGED, "reads and writes per second; 0 for any"),
            Param::optional("rw_mbytes_per_sec", U64, UNCHANGED, "MiB/s of reads and writes; 0 for any"),
            Param::optional("r_mbytes_per_sec", U64, UNCHANGED, "MiB/s of reads; 0 for any"),
            Param::optional("w_mbytes_per_sec", U64, UNCHANGED, "MiB/s of writes; 0 for any"),
        ],
        "true",
        set_qos_limit,
    ),
    only(
        "bdev_nvme_set_hotplug",
        "Say that local NVMe drives are not looked for",
        &[
            Param::only(
                "enable",
                ParamKind::Bool,
                "false",
                "there are no local NVMe drives: serve /dev/nvme0n1 with bdev_uring_create",
            ),
            Param::ignored("period_us", U64, "nothing is looked for, however often"),
        ],
    ),
    method(
        "bdev_reset_iostat",
        "Begin to count anew what devices do",
        &[
            Param::optional("name", ParamKind::Text, "all", "only this one"),
            Param::optional("mode", ParamKind::OneOf(RESETS), "all", RESET_MODES),
        ],
        "true",
        |state, params| {
            reset_stats(state, params.text_if("name"), params.text_if("mode").unwrap_or("all"))?;
            Ok(Value::Bool(true))
        },
    ),
    method(
        "bdev_enable_histogram",
        "Count the latencies of a device from now on, or no longer",
        &[
            NAME,
            Param::required("enable", ParamKind::Bool, "count them"),
            Param::only("granularity", ParamKind::Number(64), "7", "a power of two has 128 buckets"),
            Param::only("min_nsec", U64, "0", "all latencies are counted"),
            Param::only("max_nsec", U64, "0", "all latencies are counted"),
        ],
        "true",
        enable_histogram,
    ),
    method(
        "bdev_get_histogram",
        "Tell the latencies of a device since bdev_enable_histogram",
        &[NAME],
        "histogram (Base64 of 64-bit counts), granularity and bucket_shift, tsc_rate (1/s)",
        get_histogram,
    ),
    method(
        "bdev_error_inject_error",
        "Make I/O of an error device fail, hang, end short or end late",
        &[
            NAME,
            Param::required(
                "io_type",
                ParamKind::OneOf(&["read", "write", "flush", "unmap", "all", "clear"]),
                "kind of I/O; clear ends all errors, and ends I/O that hangs",
            ),
            Param::required(
                "error_type",
                ParamKind::OneOf(&["failure", "pending", "short", "slow"]),
                "fail, never end, transfer half (SPDK lacks this), end late (SPDK lacks this)",
            ),
            Param::optional("num", U32, "1", "number of errors; 0: until clear. A later call replaces the rest"),
            Param::optional("one_in", U32, "1: all", "one I/O in N has the error (SPDK lacks this)"),
            Param::optional("slow_us", U64, "1000000", "delay of slow in microseconds (SPDK lacks this)"),
        ],
        "true",
        inject_error,
    ),
];

const LATENCIES: [&str; 4] = ["avg_read", "p99_read", "avg_write", "p99_write"];

fn create(state: &mut State, method: &str, params: &Params, spec: DeviceSpec) -> Result<DeviceInfo, RpcError> {
    let name = spec.name.clone();
    let info = state.target.create_device(spec).map_err(refusal)?;
    let mut given = params.as_given().clone();
    if !["bdev_error_create", "bdev_split_create"].contains(&method) {
        given.insert("name".into(), json!(name));
    }
    // The UUIDs of other devices follow from the machine and the file: they come back by themselves.
    if matches!(info.spec.kind, DeviceKind::Null { .. } | DeviceKind::Memory { .. }) {
        given.insert("uuid".into(), json!(uuid::text(&info.uuid)));
    }
    state.remember("bdev", method, given);
    Ok(info)
}

fn given_uuid(params: &Params) -> Result<Option<[u8; 16]>, RpcError> {
    let given = params.text_if("uuid").map(|text| uuid("uuid", text)).transpose()?;
    Ok(given.filter(|uuid| *uuid != [0; 16])) // SPDK's way to say that there is none
}

/// `num_blocks` of `block_size`, in bytes.
fn capacity(params: &Params) -> Result<(u32, u64), RpcError> {
    let block_bytes = params.u32_if("block_size").unwrap_or_default();
    if !block_bytes.is_power_of_two() || !(512..=65_536).contains(&block_bytes) {
        return Err(RpcError::params(format!("block_size {block_bytes} is not a power of two from 512 to 65536")));
    }
    if let Some(physical) = params.u32_if("physical_block_size").filter(|bytes| ![0, block_bytes].contains(bytes)) {
        return Err(RpcError::params(format!("physical_block_size {physical} must be the block_size, {block_bytes}")));
    }
    let bytes = params.number("num_blocks").checked_mul(block_bytes.into()).filter(|bytes| *bytes <= i64::MAX as u64);
    match bytes {
        Some(0) => Err(RpcError::params("num_blocks must be at least 1")),
        Some(bytes) => Ok((block_bytes, bytes)),
        None => Err(RpcError::params("num_blocks x block_size is more than 8 EiB")),
    }
}

fn null_create(state: &mut State, params: &Params) -> Outcome {
    let (block_bytes, bytes) = capacity(params)?;
    let name = params.text("name").to_string();
    let spec = DeviceSpec {
        name,
        block_bytes: Some(block_bytes),
        uuid: given_uuid(params)?,
        kind: DeviceKind::Null { bytes },
    };
    Ok(json!(create(state, "bdev_null_create", params, spec)?.spec.name))
}

fn malloc_create(state: &mut State, params: &Params) -> Outcome {
    let (block_bytes, bytes) = capacity(params)?;
    let taken: Vec<String> = state.target.devices().into_iter().map(|device| device.spec.name).collect();
    let free = || (0..).map(|number| format!("Malloc{number}")).find(|name| !taken.contains(name)).unwrap_or_default();
    let name = params.text_if("name").map_or_else(free, str::to_string);
    let kind = DeviceKind::Memory { bytes };
    let spec = DeviceSpec { name, block_bytes: Some(block_bytes), uuid: given_uuid(params)?, kind };
    Ok(json!(create(state, "bdev_malloc_create", params, spec)?.spec.name))
}

fn file_create(state: &mut State, params: &Params, method: &str) -> Outcome {
    let path = PathBuf::from(params.text("filename"));
    let read_only = method == "bdev_aio_create" && params.bool_if("readonly").unwrap_or(false);
    if !read_only && !state.settings.allow_in_use {
        let users = sys::block::users_of(&path);
        if !users.is_empty() {
            let what = format!("refusing to write to {}: it is {}", path.display(), users.join(", and "));
            let insist = "serve it readonly, or start `plimsoll serve` with --allow-mounted-write";
            return Err(RpcError::errno(libc::EBUSY, format!("{what}; {insist}")));
        }
    }
    let spec = DeviceSpec {
        name: params.text("name").to_string(),
        block_bytes: params.u32_if("block_size").filter(|bytes| *bytes > 0), // 0 is SPDK's "as it is"
        uuid: given_uuid(params)?,
        kind: DeviceKind::File {
            path,
            create_bytes: params.number_if("create_size"),
            direct: true,
            read_only,
            keeps_allocated: method == "bdev_aio_create" && params.bool_if("fallocate") == Some(false),
            shared: params.bool_if("shared").unwrap_or(false),
        },
    };
    let info = create(state, method, params, spec)?;
    if !info.direct {
        let name = &info.spec.name;
        state.warnings.push(format!("{name}: its file system has no O_DIRECT, so I/O goes through the page cache"));
    }
    Ok(json!(info.spec.name))
}

fn delay_create(state: &mut State, params: &Params) -> Outcome {
    let kind = DeviceKind::Delay { base: params.text("base_bdev_name").to_string(), latency: latency(params) };
    let spec = DeviceSpec { name: params.text("name").to_string(), block_bytes: None, uuid: given_uuid(params)?, kind };
    Ok(json!(create(state, "bdev_delay_create", params, spec)?.spec.name))
}

fn latency(params: &Params) -> Latency {
    let [avg_read_us, p99_read_us, avg_write_us, p99_write_us] =
        LATENCIES.map(|name| params.number(&format!("{name}_latency")));
    Latency { avg_read_us, p99_read_us, avg_write_us, p99_write_us }
}

fn delay_update(state: &mut State, params: &Params) -> Outcome {
    let name = params.text("delay_bdev_name");
    let is_it = |method: &str, given: &Value| method == "bdev_delay_create" && given["name"] == name;
    let made = made_by(state, name, &["bdev_delay_create"])?;
    let mut latencies: Map<String, Value> = made;
    let key = format!("{}_latency", params.text("latency_type"));
    latencies.insert(key.clone(), json!(params.number("latency_us")));
    let value = |name: &str| latencies[&format!("{name}_latency")].as_u64().unwrap_or_default();
    let [avg_read_us, p99_read_us, avg_write_us, p99_write_us] = LATENCIES.map(value);
    state
        .target
        .set_latency(name, Latency { avg_read_us, p99_read_us, avg_write_us, p99_write_us })
        .map_err(refusal)?;
    state.amend(is_it, &key, json!(params.number("latency_us")));
    Ok(Value::Bool(true))
}

/// Parameters of the call that made the device, which must be one of these methods.
fn made_by(state: &State, name: &str, methods: &[&str]) -> Result<Map<String, Value>, RpcError> {
    let step = state.made.iter().find(|step| device_of(&step.method, step.params.as_ref()).as_deref() == Some(name));
    match step {
        Some(step) if methods.contains(&step.method.as_str()) => {
            Ok(step.params.as_ref().and_then(Value::as_object).cloned().unwrap_or_default())
        }
        Some(step) => Err(RpcError::params(format!("{name} was made by {}: another method is for it", step.method))),
        None => Err(no_such(state, name)),
    }
}

/// The device that a call makes, if it makes one.
fn device_of(method: &str, params: Option<&Value>) -> Option<String> {
    let params = params?;
    match method {
        "bdev_error_create" => Some(format!("EE_{}", params["base_name"].as_str()?)),
        "bdev_split_create" | "bdev_set_qos_limit" => None,
        _ if method.starts_with("bdev_") => params["name"].as_str().map(str::to_string),
        _ => None,
    }
}

fn no_such(state: &State, name: &str) -> RpcError {
    let devices: Vec<String> = state.target.devices().into_iter().map(|device| device.spec.name).collect();
    let there = if devices.is_empty() { "there are none".into() } else { format!("there are {}", devices.join(", ")) };
    RpcError::errno(libc::ENODEV, format!("No such device: {name}; {there}"))
}

fn delete(state: &mut State, params: &Params, methods: &[&str]) -> Outcome {
    let name = params.text("name");
    made_by(state, name, methods)?;
    let departure = state.target.delete_device(name).map_err(refusal)?;
    state.await_departure(departure);
    state.forget(|method, given| device_of(method, Some(given)).as_deref() == Some(name));
    state.faults.remove(name);
    forget_users(state, name);
    Ok(Value::Bool(true))
}

/// The target has removed the namespaces and the limit of a device that no longer exists.
fn forget_users(state: &mut State, device: &str) {
    let of_device = |given: &Value| given["namespace"]["bdev_name"] == device;
    let added = state.made.iter().filter(|step| step.method == "nvmf_subsystem_add_ns");
    let added = added.filter_map(|step| step.params.as_ref().filter(|given| of_device(given)));
    let gone: Vec<(Value, Value)> =
        added.map(|given| (given["nqn"].clone(), given["namespace"]["nsid"].clone())).collect();
    state.forget(|method, given| match method {
        "nvmf_subsystem_add_ns" => of_device(given),
        "nvmf_ns_add_host" => gone.iter().any(|(nqn, nsid)| given["nqn"] == *nqn && given["nsid"] == *nsid),
        "bdev_set_qos_limit" => given["name"] == device,
        _ => false,
    });
}

fn null_resize(state: &mut State, params: &Params) -> Outcome {
    let name = params.text("name");
    made_by(state, name, &["bdev_null_create"])?;
    let bytes = params.number("new_size").checked_mul(1 << 20).filter(|bytes| (1..=i64::MAX as u64).contains(bytes));
    let bytes = bytes.ok_or_else(|| RpcError::params("new_size must be 1 MiB to 8 EiB, in MiB"))?;
    if let Some(part) = part_beyond(&state.target.devices(), name, bytes) {
        return Err(RpcError::errno(
            libc::EBUSY,
            format!("{part} ends beyond {bytes} bytes of {name}: delete that first"),
        ));
    }
    let info = state.target.resize_device(name, Some(bytes)).map_err(refusal)?;
    let is_it = |method: &str, given: &Value| method == "bdev_null_create" && given["name"] == name;
    state.amend(is_it, "num_blocks", json!(info.blocks));
    Ok(Value::Bool(true))
}

/// The part of a device, or of one stacked on the device, that ends beyond this many bytes. Devices are in the order of
/// their creation, so each comes after the one below.
fn part_beyond<'a>(devices: &'a [DeviceInfo], name: &'a str, bytes: u64) -> Option<&'a str> {
    // Devices that have every byte of the device, at the same place.
    let mut whole = vec![name];
    for device in devices {
        let kind = &device.spec.kind;
        if !kind.base().is_some_and(|base| whole.contains(&base)) {
            continue;
        }
        match kind {
            DeviceKind::Slice { offset_bytes, bytes: part, .. } if offset_bytes + part > bytes => {
                return Some(&device.spec.name);
            }
            DeviceKind::Slice { .. } => {}
            _ => whole.push(&device.spec.name),
        }
    }
    None
}

fn rescan(state: &mut State, params: &Params) -> Outcome {
    let name = params.text("name");
    made_by(state, name, &FILE_BLOCK_KINDS)?;
    state.target.resize_device(name, None).map_err(refusal)?;
    Ok(Value::Bool(true))
}

fn split_create(state: &mut State, params: &Params) -> Outcome {
    let base = params.text("base_bdev");
    let devices = state.target.devices();
    let Some(below) = devices.iter().find(|device| device.spec.name == base) else { return Err(no_such(state, base)) };
    let (block_bytes, blocks) = (u64::from(below.block_bytes), below.blocks);
    let count = params.number("split_count");
    if count == 0 || count > blocks {
        return Err(RpcError::params(format!("split_count {count}: {base} can be divided into 1 to {blocks} parts")));
    }
    let part_blocks = match [params.number("split_size_mb"), params.number("split_blocks")] {
        [0, 0] => blocks / count,
        [0, blocks] => blocks,
        // The product of more MiB than a device can have is not computed: it would wrap around.
        [mib, 0] => mib.checked_mul(1 << 20).map_or(u64::MAX, |bytes| bytes / block_bytes),
        _ => return Err(RpcError::params("split_size_mb and split_blocks are the same: give one of them")),
    };
    if part_blocks == 0 || part_blocks.checked_mul(count).is_none_or(|all| all > blocks) {
        let mib = (blocks * block_bytes) >> 20;
        return Err(RpcError::params(format!(
            "{count} parts of that size do not fit into {base}, which has {mib} MiB"
        )));
    }
    let part_bytes = part_blocks * block_bytes;
    let parts = (0..count).map(|number| {
        let kind = DeviceKind::Slice { base: base.into(), offset_bytes: number * part_bytes, bytes: part_bytes };
        DeviceSpec { name: format!("{base}p{number}"), block_bytes: None, uuid: None, kind }
    });
    let parts = state.target.create_devices(parts).map_err(refusal)?;
    let names: Vec<String> = parts.into_iter().map(|part| part.spec.name).collect();
    // The parts keep their places when the device below has another size the next time.
    let mut given = params.as_given().clone();
    match part_bytes % (1 << 20) {
        0 => given.insert("split_size_mb".into(), json!(part_bytes >> 20)),
        _ => given.insert("split_blocks".into(), json!(part_blocks)),
    };
    state.remember("bdev", "bdev_split_create", given);
    Ok(json!(names))
}

fn split_delete(state: &mut State, params: &Params) -> Outcome {
    let base = params.text("base_bdev");
    let is_part =
        |device: &&DeviceInfo| matches!(&device.spec.kind, DeviceKind::Slice { base: below, .. } if below == base);
    let devices = state.target.devices();
    let parts: Vec<&DeviceInfo> = devices.iter().filter(is_part).collect();
    if parts.is_empty() {
        return Err(RpcError::errno(libc::ENODEV, format!("No such device: {base} is not divided")));
    }
    // All or nothing: a part with a device on it keeps the others.
    if let Some(busy) = parts.iter().find(|part| !part.claimed_by.is_empty()) {
        let (part, by) = (&busy.spec.name, busy.claimed_by.join(", "));
        return Err(RpcError::errno(libc::EBUSY, format!("{part} is below {by}: delete that first")));
    }
    for part in parts {
        let departure = state.target.delete_device(&part.spec.name).map_err(refusal)?;
        state.await_departure(departure);
        forget_users(state, &part.spec.name);
    }
    state.forget(|method, given| method == "bdev_split_create" && given["base_bdev"] == base);
    Ok(Value::Bool(true))
}

fn error_create(state: &mut State, params: &Params) -> Outcome {
    let base = params.text("base_name");
    let kind = DeviceKind::Faulty { base: base.into(), seed: 1 };
    let spec = DeviceSpec { name: format!("EE_{base}"), block_bytes: None, uuid: given_uuid(params)?, kind };
    create(state, "bdev_error_create", params, spec)?;
    Ok(Value::Bool(true))
}

fn inject_error(state: &mut State, params: &Params) -> Outcome {
    let name = params.text("name");
    made_by(state, name, &["bdev_error_create"])?;
    let on = match params.text("io_type") {
        "read" => Some(FaultOn::Reads),
        "write" => Some(FaultOn::Writes),
        "flush" => Some(FaultOn::Flushes),
        "unmap" => Some(FaultOn::Deallocates),
        "all" => Some(FaultOn::All),
        _ => None,
    };
    let effect = match params.text("error_type") {
        "failure" => Effect::Fail,
        "pending" => Effect::Never,
        "short" => Effect::Short,
        _ => Effect::Slow { us: params.number_if("slow_us").unwrap_or(1_000_000) },
    };
    let mut faults = state.faults.get(name).cloned().unwrap_or_default();
    match on {
        None => faults.clear(),
        Some(on) => {
            // The target counts down a fault's number and does not tell how far: given once more it would begin again.
            faults.retain(|fault| fault.count.is_none() && fault.on != on);
            let count = Some(u64::from(params.u32_if("num").unwrap_or(1))).filter(|count| *count > 0);
            faults.push(Fault { on, effect, one_in: params.u32_if("one_in").unwrap_or(1).max(1), count });
        }
    }
    state.target.set_faults(name, &faults).map_err(refusal)?;
    state.faults.insert(name.into(), faults);
    Ok(Value::Bool(true))
}

/// Devices that `name` picks: one that must exist, or all.
fn picked<T>(state: &State, params: &Params, all: Vec<T>, name_of: impl Fn(&T) -> &str) -> Result<Vec<T>, RpcError> {
    let Some(name) = params.text_if("name") else { return Ok(all) };
    let one: Vec<T> = all.into_iter().filter(|device| name_of(device) == name).collect();
    if one.is_empty() { Err(no_such(state, name)) } else { Ok(one) }
}

/// The time that `bdev_get_bdevs` waits for a device, if the call is one that waits.
pub(super) fn patience(method: &str, given: Option<&Value>) -> Option<Duration> {
    let given = given.filter(|given| method == "bdev_get_bdevs" && given["name"].is_string())?;
    Some(Duration::from_millis(given["timeout"].as_u64()?).min(Duration::from_secs(3600)))
}

fn get_bdevs(state: &mut State, params: &Params) -> Outcome {
    let devices = picked(state, params, state.target.devices(), |device| &device.spec.name)?;
    let namespaces: Vec<String> = state
        .target
        .subsystems()
        .into_iter()
        .flat_map(|subsystem| subsystem.namespaces)
        .map(|namespace| namespace.device)
        .collect();
    let aio = |name: &str| made_by(state, name, &["bdev_aio_create"]).is_ok();
    Ok(devices
        .iter()
        .map(|device| describe(device, namespaces.contains(&device.spec.name), aio(&device.spec.name)))
        .collect())
}

fn describe(device: &DeviceInfo, in_namespace: bool, aio: bool) -> Value {
    let (product, mut specific) = match &device.spec.kind {
        DeviceKind::Null { .. } => ("Null disk", json!({})),
        DeviceKind::Memory { .. } => ("Malloc disk", json!({})),
        DeviceKind::File { path, read_only, .. } if aio => {
            ("AIO disk", json!({ "aio": { "filename": path, "readonly": read_only, "direct": device.direct } }))
        }
        DeviceKind::File { path, .. } => {
            ("URING bdev", json!({ "uring": { "filename": path, "direct": device.direct } }))
        }
        DeviceKind::Delay { base, latency } => (
            "delay",
            json!({ "delay": {
                "name": device.spec.name,
                "base_bdev_name": base,
                "avg_read_latency": latency.avg_read_us,
                "p99_read_latency": latency.p99_read_us,
                "avg_write_latency": latency.avg_write_us,
                "p99_write_latency": latency.p99_write_us
            } }),
        ),
        DeviceKind::Slice { base, offset_bytes, .. } => {
            let offset = offset_bytes / u64::from(device.block_bytes);
            ("Split Disk", json!({ "split": { "base_bdev": base, "offset_blocks": offset } }))
        }
        DeviceKind::Faulty { base, .. } => ("Error Injection Disk", json!({ "error": { "base_bdev": base } })),
    };
    if matches!(device.spec.kind, DeviceKind::File { shared: true, .. }) {
        specific["shared"] = json!({ "held": device.held });
    }
    let writes = !device.read_only;
    let unmaps = writes && !matches!(device.spec.kind, DeviceKind::File { keeps_allocated: true, .. });
    json!({
        "name": device.spec.name,
        "aliases": [uuid::text(&device.uuid)],
        "product_name": product,
        "block_size": device.block_bytes,
        "num_blocks": device.blocks,
        "uuid": uuid::text(&device.uuid),
        "assigned_rate_limits": {
            "rw_ios_per_sec": device.rates.ops_per_s,
            "rw_mbytes_per_sec": device.rates.bytes_per_s >> 20,
            "r_mbytes_per_sec": device.rates.read_bytes_per_s >> 20,
            "w_mbytes_per_sec": device.rates.write_bytes_per_s >> 20
        },
        "claimed": in_namespace || !device.claimed_by.is_empty(),
        "zoned": false,
        "supported_io_types": {
            "read": true, "write": writes, "unmap": unmaps, "flush": true, "reset": false, "nvme_admin": false,
            "nvme_io": false, "nvme_io_md": false, "write_zeroes": writes, "zcopy": false, "get_zone_info": false,
            "zone_management": false, "zone_append": false, "compare": true, "compare_and_write": false,
            "abort": true, "seek_hole": false, "seek_data": false, "copy": false, "nvme_iov_md": false
        },
        "driver_specific": specific
    })
}

/// The highest limit in MiB/s: more bytes do not fit into 64 bits.
const MOST_MIB: u64 = u64::MAX >> 20;

fn set_qos_limit(state: &mut State, params: &Params) -> Outcome {
    let name = params.text("name");
    let devices = state.target.devices();
    let Some(device) = devices.iter().find(|device| device.spec.name == name) else { return Err(no_such(state, name)) };
    if let Some(above) = device.claimed_by.first() {
        return Err(RpcError::errno(libc::EBUSY, format!("{name} is below {above}, which hosts use: limit that")));
    }
    let limits = ["rw_ios_per_sec", "rw_mbytes_per_sec", "r_mbytes_per_sec", "w_mbytes_per_sec"];
    if !limits.iter().any(|limit| params.has(limit)) {
        return Err(RpcError::params(format!("give at least one of {}", limits.join(", "))));
    }
    let bytes = |limit: &str, now: u64| match params.number_if(limit) {
        Some(mib) if mib > MOST_MIB => Err(RpcError::params(format!("{limit} {mib}: give at most {MOST_MIB} MiB/s"))),
        mib => Ok(mib.map_or(now, |mib| mib << 20)),
    };
    let rates = Rates {
        ops_per_s: params.number_if(limits[0]).unwrap_or(device.rates.ops_per_s),
        bytes_per_s: bytes(limits[1], device.rates.bytes_per_s)?,
        read_bytes_per_s: bytes(limits[2], device.rates.read_bytes_per_s)?,
        write_bytes_per_s: bytes(limits[3], device.rates.write_bytes_per_s)?,
    };
    state.target.set_rates(name, rates).map_err(refusal)?;
    state.forget(|method, given| method == "bdev_set_qos_limit" && given["name"] == name);
    if !rates.is_unlimited() {
        let in_force =
            [rates.ops_per_s, rates.bytes_per_s >> 20, rates.read_bytes_per_s >> 20, rates.write_bytes_per_s >> 20];
        let mut given = Map::from_iter([("name".to_string(), json!(name))]);
        given.extend(limits.iter().zip(in_force).map(|(limit, number)| (limit.to_string(), json!(number))));
        state.remember("bdev", "bdev_set_qos_limit", given);
    }
    Ok(Value::Bool(true))
}

fn reset_stats(state: &State, name: Option<&str>, mode: &str) -> Result<(), RpcError> {
    if let Some(name) = name.filter(|name| state.target.devices().iter().all(|device| device.spec.name != *name)) {
        return Err(no_such(state, name));
    }
    let change = match mode {
        "all" => StatsChange::Reset,
        "maxmin" => StatsChange::ResetMaxima,
        "error" => StatsChange::ResetErrors,
        _ => return Ok(()),
    };
    state.target.change_stats(name, change).map_err(refusal)
}

fn enable_histogram(state: &mut State, params: &Params) -> Outcome {
    let name = params.text("name");
    picked(state, params, state.target.devices(), |device| &device.spec.name)?;
    let change = StatsChange::CountLatencies(params.bool_if("enable").unwrap_or(false));
    state.target.change_stats(Some(name), change).map_err(refusal)?;
    Ok(Value::Bool(true))
}

fn get_histogram(state: &mut State, params: &Params) -> Outcome {
    let name = params.text("name");
    let devices = picked(state, params, state.target.devices(), |device| &device.spec.name)?;
    if !devices.iter().all(|device| device.counts_latencies) {
        return Err(RpcError::errno(
            libc::EFAULT,
            format!("{name}: latencies are not counted: bdev_enable_histogram enable=true"),
        ));
    }
    let stats = state.target.stats().devices.into_iter().find(|device| device.name == name);
    let latencies = stats.and_then(|device| device.latencies).unwrap_or_default();
    Ok(json!({
        "histogram": STANDARD.encode(latencies.bytes()),
        "granularity": GRANULARITY,
        "bucket_shift": GRANULARITY,
        "tsc_rate": 1_000_000_000u64
    }))
}

fn get_iostat(state: &mut State, params: &Params) -> Outcome {
    let stats = state.target.stats();
    let mut devices = picked(state, params, stats.devices, |device| &device.name)?;
    if let Some(names) = params.list_if("names") {
        if let Some(name) = names.iter().find(|name| devices.iter().all(|device| device.name != **name)) {
            return Err(no_such(state, name));
        }
        devices.retain(|device| names.contains(&device.name.as_str()));
    }
    let one = |device: &DeviceStats| {
        json!({
            "name": device.name,
            "bytes_read": device.read_bytes,
            "num_read_ops": device.reads,
            "bytes_written": device.write_bytes,
            "num_write_ops": device.writes,
            "bytes_unmapped": device.deallocate_bytes,
            "num_unmap_ops": device.deallocates,
            "num_flush_ops": device.flushes,
            "num_errors": device.errors,
            "read_latency_ticks": device.read_ns,
            "max_read_latency_ticks": device.read_ns_max,
            "write_latency_ticks": device.write_ns,
            "max_write_latency_ticks": device.write_ns_max,
            "queue_depth": device.in_device
        })
    };
    let bdevs: Vec<Value> = devices.iter().map(one).collect();
    for device in &devices {
        reset_stats(state, Some(&device.name), params.text_if("reset_mode").unwrap_or("none"))?;
    }
    Ok(json!({ "tick_rate": 1_000_000_000u64, "ticks": stats.at_ns, "bdevs": bdevs }))
}
