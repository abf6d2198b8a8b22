//! The values that are small languages of their own: `bssplit`, `random_distribution`, patterns, ...

use std::io::Read;

use measure::PerDirection;

use super::{Each, Reader};
use crate::job::*;

/// Splits `reads,writes,trims`. With two parts, trims take the value of writes. An empty part keeps the earlier value.
pub fn each<T: Copy>(text: &str, mut parse: impl FnMut(&str) -> Result<T, String>) -> Result<Each<T>, String> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if parts.len() > 3 {
        return Err("there are more than three parts: reads, writes, trims".into());
    }
    let mut optional = |part: &str| if part.is_empty() { Ok(None) } else { parse(part).map(Some) };
    let read = optional(parts[0])?;
    let write = parts.get(1).map_or(Ok(read), |part| optional(part))?;
    let trim = parts.get(2).map_or(Ok(write), |part| optional(part))?;
    if read.is_none() && write.is_none() && trim.is_none() {
        return Err("there is no value".into());
    }
    Ok(PerDirection { read, write, trim })
}

/// A share from 0 to 1.
pub fn share(text: &str) -> Result<f64, String> {
    if text.contains(':') {
        return Err("the list exceeding max length: one number is allowed".into());
    }
    let share: f64 = text.trim().parse().map_err(|_| format!("\"{text}\" is not a number"))?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("value out of range: it is from 0 to 1".into()) }
}

/// `zoneskip=`: bytes or zones.
pub fn zone_skip(reader: &mut Reader, text: &str) -> Result<u64, String> {
    match reader.amount(text)? {
        Amount::Bytes(bytes) => Ok(bytes),
        Amount::Percent(_) => Err(format!("\"{text}\" is not a size: write for example zoneskip=1m")),
    }
}

/// Puts the given values over those that are there.
pub fn update<T: Copy>(target: &mut PerDirection<T>, given: Each<T>) {
    for (direction, slot) in target.iter_mut() {
        if let Some(value) = given[direction] {
            *slot = value;
        }
    }
}

/// Puts the given values over those that are there, where a value may be absent; a given 0 makes it absent (None).
pub fn update_nonzero(target: &mut PerDirection<Option<u64>>, given: Each<u64>) {
    for (direction, slot) in target.iter_mut() {
        if let Some(value) = given[direction] {
            *slot = Some(value).filter(|value| *value != 0);
        }
    }
}

/// Splits at colons that no backslash stands before; the backslash is dropped. In a URL of a Gluster volume
/// or the address of an NVMe namespace, only a colon with another one behind it separates.
pub fn split_names(text: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut characters = text.trim().chars().peekable();
    while let Some(character) = characters.next() {
        let last = names.last_mut().expect("starts with one");
        match character {
            '\\' if characters.peek() == Some(&':') => last.extend(characters.next()),
            ':' if colon_belongs_to_url(last, &characters.clone().take(8).collect::<String>()) => last.push(':'),
            ':' => names.push(String::new()),
            _ => last.push(character),
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// True if a colon between these texts is part of `gluster[+TRANSPORT]://HOST[:PORT]/VOLUME/PATH`, or of `trtype=tcp
/// ... subnqn=nqn.2016-06.io.spdk:cnode1 ns=1`.
fn colon_belongs_to_url(before: &str, after: &str) -> bool {
    if before.trim_start().starts_with("tr") && before.contains('=') {
        return !after.trim_start().starts_with("tr");
    }
    let scheme = before.split("://").next().unwrap_or_default();
    let is_url = scheme == "gluster" || scheme.starts_with("gluster+");
    is_url && if before.contains("://") { !after.starts_with("gluster") } else { after.starts_with("//") }
}

/// `rw=`: the word, then `:N`.
pub fn rw(reader: &mut Reader, text: &str) -> Result<Rw, String> {
    let (word, suffix) = text.split_once(':').map_or((text, None), |(word, suffix)| (word, Some(suffix.trim())));
    let (name, random) = match word.trim().strip_prefix("rand") {
        Some(rest) => (rest, true),
        None => (word.trim(), false),
    };
    let (read, write, trim) = match name {
        "read" => (true, false, false),
        "write" => (false, true, false),
        "trim" => (false, false, true),
        "rw" | "readwrite" if name == "rw" || !random => (true, true, false),
        "trimwrite" => (false, true, true),
        _ => return Err(super::not_one_of(word, super::table::RW_WORDS)),
    };
    let mut rw = Rw {
        directions: PerDirection { read, write, trim },
        random,
        trim_then_write: trim && write,
        sequential_stride: 0,
        ops_per_offset: 1,
    };
    match suffix.map(|suffix| reader.whole(suffix)) {
        Some(suffix) if random => rw.ops_per_offset = reader.count(suffix, 1, u32::MAX.into())? as u32,
        Some(suffix) => rw.sequential_stride = reader.signed_bytes(suffix)?,
        None => {}
    }
    Ok(rw)
}

/// One part of a `bssplit` or `zoned` list: `A/B`, B possibly missing.
fn pairs(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    text.split(':').map(str::trim).filter(|part| !part.is_empty()).map(|part| match part.split_once('/') {
        Some((first, second)) => (first.trim(), Some(second.trim()).filter(|second| !second.is_empty())),
        None => (part, None),
    })
}

fn percent(text: &str) -> Result<f64, String> {
    measure::units::parse_percent(text).map(|fraction| fraction * 100.0).map_err(|error| error.to_string())
}

/// Divides the rest of 100 equally among the missing shares, and checks that the sum is 100.
fn complete(shares: Vec<Option<f64>>, of: &str) -> Result<Vec<f64>, String> {
    let given: f64 = shares.iter().flatten().sum();
    let missing = shares.iter().filter(|share| share.is_none()).count();
    if given > 100.000_001 {
        return Err(format!("the {of} add up to {given}%, which is more than 100%"));
    }
    if missing == 0 && given < 99.999_999 {
        return Err(format!("the {of} add up to {given}%: write 100%, or leave one out to give it the rest"));
    }
    Ok(shares.into_iter().map(|share| share.unwrap_or((100.0 - given) / missing as f64)).collect())
}

/// `bssplit=`: `4k/10:64k/50:32k/40` for reads, writes, trims.
pub fn bssplit(reader: &mut Reader, text: &str) -> Result<PerDirection<Vec<(u64, f64)>>, String> {
    lists(text, |list| {
        let mut sizes = Vec::new();
        let mut shares = Vec::new();
        for (size, share) in pairs(list) {
            sizes.push(
                reader.bytes(size).and_then(|bytes| {
                    if bytes == 0 { Err("a block has at least one byte".into()) } else { Ok(bytes) }
                })?,
            );
            shares.push(share.map(percent).transpose()?.filter(|share| *share > 0.0));
        }
        if reader.lenient {
            cut_at_100(list, &mut shares, &mut reader.differences);
        }
        Ok(sizes.into_iter().zip(complete(shares, "percentages")?).collect())
    })
}

/// Cuts shares that add up to more than 100 where they reach it, as fio does if each share is given. The smallest come
/// first.
fn cut_at_100(list: &str, shares: &mut [Option<f64>], differences: &mut Vec<String>) {
    let sum: f64 = shares.iter().flatten().sum();
    if sum <= 100.000_001 || shares.contains(&None) {
        return;
    }
    let mut left = 100.0;
    let mut ascending: Vec<&mut f64> = shares.iter_mut().flatten().collect();
    ascending.sort_by(|a, b| a.total_cmp(b));
    for share in ascending {
        *share = share.min(left);
        left -= *share;
    }
    differences
        .push(format!("the percentages of \"{list}\" add up to {sum}%: those beyond 100% have no effect, as in fio"));
}

/// A part of `cmdprio_bssplit=`: size, percent, and class, level and hint if they are given.
pub type PriorityPart = (u64, u8, Option<(u8, u8, u16)>);

/// `cmdprio_bssplit=`: `4k/30/1/0:8k/5/2/7/3:64k/10` for reads and writes.
pub fn priority_split(reader: &mut Reader, text: &str) -> Result<PerDirection<Vec<PriorityPart>>, String> {
    lists(text, |list| {
        let mut all: Vec<PriorityPart> = Vec::new();
        for part in list.split(':').map(str::trim).filter(|part| !part.is_empty()) {
            let mut fields = part.split('/').map(str::trim);
            let size = reader.bytes(fields.next().unwrap_or_default())?;
            let percent = match fields.next() {
                None | Some("") => 0,
                Some(percent) => reader.count(percent, 0, 100)? as u8,
            };
            let priority = match (fields.next(), fields.next(), fields.next(), fields.next()) {
                (None, ..) => None,
                (Some(class), Some(level), hint, None) => Some((
                    reader.count(class, 0, 3)? as u8,
                    reader.count(level, 0, 7)? as u8,
                    hint.map_or(Ok(0), |hint| reader.count(hint, 0, 1023))? as u16,
                )),
                _ => return Err(format!("\"{part}\" is not size/percent or size/percent/class/level[/hint]")),
            };
            let sum: u32 = all.iter().filter(|known| known.0 == size).map(|known| u32::from(known.1)).sum();
            if sum + u32::from(percent) > 100 {
                return Err(format!("the percentages of {size} bytes add up to more than 100%"));
            }
            all.push((size, percent, priority));
        }
        Ok(all)
    })
}

/// Reads `reads,writes,trims` where each part is a list; a part that is left out is as the one before.
fn lists<T: Clone>(
    text: &str,
    mut parse: impl FnMut(&str) -> Result<Vec<T>, String>,
) -> Result<PerDirection<Vec<T>>, String> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if parts.len() > 3 {
        return Err("there are more than three parts: reads, writes, trims".into());
    }
    let mut list = |part: &str| if part.is_empty() { Ok(Vec::new()) } else { parse(part) };
    let read = list(parts[0])?;
    let write = parts.get(1).map_or_else(|| Ok(read.clone()), |part| list(part))?;
    let trim = parts.get(2).map_or_else(|| Ok(write.clone()), |part| list(part))?;
    if read.is_empty() && write.is_empty() && trim.is_empty() {
        return Err("the list is empty".into());
    }
    Ok(PerDirection { read, write, trim })
}

/// The value of `random_distribution=`.
pub enum RandomDistribution {
    /// Every place has the same chance, or places near a hot spot have more.
    Plain(Distribution),
    /// Percent of accesses to percent of the file.
    Zoned(PerDirection<Vec<(f64, f64)>>),
    /// Percent of accesses to bytes of the file.
    ZonedAbsolute(PerDirection<Vec<(f64, u64)>>),
    /// Numbers of blocks, in turn.
    Sequence(Vec<u64>),
}

/// The word before the first colon, and the parameters behind it. A distribution with a colon has a parameter.
fn word_and_rest(text: &str) -> Result<(&str, &str), String> {
    match text.split_once(':') {
        None => Ok((text.trim(), "")),
        Some((word @ ("zipf" | "pareto" | "normal" | "gauss"), "")) => Err(format!("no number follows \"{word}:\"")),
        Some((word, rest)) => Ok((word.trim(), rest.trim())),
    }
}

/// Parses `random_distribution`.
pub fn random_distribution(reader: &mut Reader, text: &str) -> Result<RandomDistribution, String> {
    let (word, rest) = word_and_rest(text)?;
    match word {
        "gauss" => Err("\"gauss\" is not known; did you mean normal?".into()),
        "zoned" => lists(rest, |list| {
            let (accesses, sizes): (Vec<_>, Vec<_>) = pairs(list).unzip();
            let accesses = accesses.into_iter().map(|share| percent(share).map(Some)).collect::<Result<_, _>>()?;
            let sizes = sizes.into_iter().map(|size| size.map(percent).transpose()).collect::<Result<_, _>>()?;
            Ok(complete(accesses, "shares of the accesses")?
                .into_iter()
                .zip(complete(sizes, "shares of the file")?)
                .collect())
        })
        .map(RandomDistribution::Zoned),
        "zoned_abs" => lists(rest, |list| {
            let (accesses, sizes): (Vec<_>, Vec<_>) = pairs(list).unzip();
            let accesses = accesses.into_iter().map(|share| percent(share).map(Some)).collect::<Result<_, _>>()?;
            let sizes = sizes
                .into_iter()
                .map(|size| size.map_or_else(|| Err("a zone has no size".to_string()), |size| reader.bytes(size)))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(complete(accesses, "shares of the accesses")?.into_iter().zip(sizes).collect())
        })
        .map(RandomDistribution::ZonedAbsolute),
        "sequence" => rest
            .split(',')
            .map(|number| number.trim().parse().map_err(|_| format!("\"{number}\" is not the number of a block")))
            .collect::<Result<_, _>>()
            .map(RandomDistribution::Sequence),
        "random" => Ok(RandomDistribution::Plain(Distribution::Uniform)),
        _ => distribution(reader, word, rest).map(RandomDistribution::Plain),
    }
}

/// `zipf`, `pareto`, `normal` (`gauss`) with their parameter and centre.
fn distribution(reader: &mut Reader, word: &str, rest: &str) -> Result<Distribution, String> {
    let (parameter, centre) =
        rest.split_once(':').map_or((rest, None), |(parameter, centre)| (parameter, Some(centre)));
    let mut number = |text: &str| reader.float(text);
    let centre = centre.map(&mut number).transpose()?.filter(|centre| *centre != -1.0);
    if centre.is_some_and(|centre| !(0.0..=1.0).contains(&centre)) {
        return Err("the centre is a fraction of the file, from 0 to 1".into());
    }
    let mut parameter = |default: f64| if parameter.trim().is_empty() { Ok(default) } else { number(parameter) };
    match word {
        "zipf" => match parameter(1.1)? {
            theta if theta == 1.0 || theta <= 0.0 => Err("the theta of zipf is greater than 0 and not 1".into()),
            theta => Ok(Distribution::Zipf(theta, centre)),
        },
        "pareto" => match parameter(0.2)? {
            h if h > 0.0 && h < 1.0 => Ok(Distribution::Pareto(h, centre)),
            _ => Err("the power of pareto is between 0 and 1".into()),
        },
        "normal" | "gauss" => match parameter(0.0)? {
            deviation if (0.0..100.0).contains(&deviation) => Ok(Distribution::Normal(deviation, centre)),
            _ => Err("the deviation of normal is from 0 to less than 100 percent".into()),
        },
        _ => Err(super::not_one_of(word, super::table::DISTRIBUTION_WORDS)),
    }
}

/// `file_service_type=`: which file is next, and how many ops it gets.
pub fn file_service(reader: &mut Reader, text: &str) -> Result<(FileService, u32), String> {
    let (word, rest) = word_and_rest(text)?;
    let service = match word {
        "random" => FileService::Random,
        "roundrobin" => FileService::RoundRobin,
        "sequential" => FileService::Sequential,
        "zipf" | "pareto" | "normal" | "gauss" => {
            return Ok((FileService::Distributed(distribution(reader, word, rest)?), 1));
        }
        _ => return Err(super::not_one_of(word, super::table::FILE_SERVICE_WORDS)),
    };
    let ops = if rest.is_empty() { 1 } else { reader.count(rest, 1, u32::MAX.into())? as u32 };
    Ok((service, ops))
}

/// `numa_mem_policy=`.
pub fn memory_policy(text: &str) -> Result<MemoryPolicy, String> {
    let (word, nodes) = text.split_once(':').map_or((text.trim(), None), |(word, nodes)| (word.trim(), Some(nodes)));
    let some = || match nodes.map(str::trim) {
        Some("all") | None | Some("") => Err(format!("{word} needs nodes, for example {word}:0")),
        Some(nodes) => numbers(nodes),
    };
    match word {
        "default" => Ok(MemoryPolicy::Default),
        "local" => Ok(MemoryPolicy::Local),
        "prefer" => match some()?[..] {
            [node] => Ok(MemoryPolicy::Prefer(node)),
            _ => Err("prefer takes one node".into()),
        },
        "bind" => some().map(MemoryPolicy::Bind),
        "interleave" => some().map(MemoryPolicy::Interleave),
        _ => Err(format!("\"{word}\" is not one of default, local, prefer, bind, interleave")),
    }
}

/// Numbers of processors or nodes: `0-3,7`.
pub fn numbers(text: &str) -> Result<Vec<u32>, String> {
    /// More than any kernel has; keeps a typing error from filling the memory.
    const MOST: u32 = 8191;
    let number = |text: &str| {
        text.trim()
            .parse::<u32>()
            .ok()
            .filter(|number| *number <= MOST)
            .ok_or_else(|| format!("\"{text}\" is not a number from 0 to {MOST}"))
    };
    let mut all = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if first > last {
            return Err(format!("\"{part}\" runs backwards"));
        }
        all.extend(first..=last);
    }
    all.sort_unstable();
    all.dedup();
    if all.is_empty() { Err("the list is empty".into()) } else { Ok(all) }
}

/// `ignore_error=`: error names or numbers, `:` between them, for reads, writes and verification.
pub fn ignore_error(text: &str) -> Result<[Vec<i32>; 3], String> {
    let mut lists: [Vec<i32>; 3] = Default::default();
    for (index, part) in text.split(',').enumerate() {
        let Some(list) = lists.get_mut(index) else {
            return Err("there are more than three parts: reads, writes, verification".into());
        };
        for name in part.split(':').map(str::trim).filter(|name| !name.is_empty()) {
            let number = ERRNO_NAMES.iter().position(|known| *known == name).map(|index| index as i32 + 1);
            let number =
                number.or_else(|| name.parse::<i32>().ok().map(i32::saturating_abs).filter(|number| *number > 0));
            list.push(number.ok_or_else(|| format!("\"{name}\" is not an error's name or number"))?);
        }
    }
    Ok(lists)
}

/// errno(3), from 1 on: the numbers that all Linux architectures share.
const ERRNO_NAMES: [&str; 34] = [
    "EPERM", "ENOENT", "ESRCH", "EINTR", "EIO", "ENXIO", "E2BIG", "ENOEXEC", "EBADF", "ECHILD", "EAGAIN", "ENOMEM",
    "EACCES", "EFAULT", "ENOTBLK", "EBUSY", "EEXIST", "EXDEV", "ENODEV", "ENOTDIR", "EISDIR", "EINVAL", "ENFILE",
    "EMFILE", "ENOTTY", "ETXTBSY", "EFBIG", "ENOSPC", "ESPIPE", "EROFS", "EMLINK", "EPIPE", "EDOM", "ERANGE",
];

/// `replay_skip=`.
pub fn replay_skip(text: &str) -> Result<ReplaySkip, String> {
    let mut skip = ReplaySkip::default();
    for word in text.split(',').map(str::trim) {
        match word {
            "read" => skip.ops.read = true,
            "write" => skip.ops.write = true,
            "trim" => skip.ops.trim = true,
            "sync" => skip.syncs = true,
            _ => return Err(format!("\"{word}\" is not one of read, write, trim, sync")),
        }
    }
    Ok(skip)
}

/// `replay_align=`: a power of two.
pub fn power_of_two(reader: &mut Reader, text: &str) -> Result<u64, String> {
    match reader.bytes(text)? {
        bytes if bytes.is_power_of_two() || bytes == 0 && !reader.lenient => Ok(bytes),
        bytes => Err(format!("{bytes} is not a power of two")),
    }
}

/// `uid=` and `gid=`: the number of a user or group. As fio reads it, -1 is that of the caller.
pub fn identity(reader: &mut Reader, text: &str) -> Result<Option<u32>, String> {
    if let Some(-1 | 0xffff_ffff) = reader.loose_integer(text) {
        return Ok(None);
    }
    reader.count(text, 0, u64::from(u32::MAX) - 1).map(|number| Some(number as u32))
}

/// `sync_file_range=`: flags of sync_file_range(2), and after how many writes; None where fio reads 0 writes.
pub fn sync_file_range(reader: &mut Reader, text: &str) -> Result<Option<(u32, u32)>, String> {
    let (words, every) = text.rsplit_once(':').map_or((text, None), |(words, every)| (words, Some(every)));
    let mut flags = 0;
    for word in words.split([',', ':']).map(str::trim) {
        flags |= match word {
            "wait_before" => 1,
            "write" => 2,
            "wait_after" => 4,
            _ => return Err(format!("\"{word}\" is not one of wait_before, write, wait_after")),
        };
    }
    let every = match every {
        Some(every) if reader.lenient && reader.loose_integer(every).is_none_or(|number| number == 0) => {
            reader
                .differences
                .push("the job never calls sync_file_range(2), as in fio, which reads 0 writes here".into());
            return Ok(None);
        }
        Some(every) => reader.count(every, 1, u32::MAX.into())?,
        None => 1,
    };
    Ok(Some((flags, every as u32)))
}

/// `steadystate=`: `iops:0.3%`, `bw_slope:2m`. The windows come from options of their own.
pub fn steady_state(reader: &mut Reader, text: &str) -> Result<SteadyState, String> {
    let (word, limit) = text.split_once(':').ok_or("the limit is missing: write iops:0.3% or bw_slope:0.3%")?;
    let (bandwidth, slope) = match word.trim() {
        "iops" => (false, false),
        "iops_slope" => (false, true),
        "bw" => (true, false),
        "bw_slope" => (true, true),
        "lat" | "lat_slope" => {
            return Err(
                "latencies are not watched; at a fixed iodepth they are steady where IOPS is: write iops:LIMIT".into(),
            );
        }
        other => return Err(super::not_one_of(other, super::table::STEADY_STATE_WORDS)),
    };
    let limit = limit.trim();
    let (value, percent) = match limit.strip_suffix('%') {
        Some(number) => (measure::units::parse_number(number).map_err(|error| error.to_string())? / 100.0, true),
        None if bandwidth => (reader.bytes(limit)? as f64, false),
        None => (reader.float(limit)?, false),
    };
    if !(0.0..1e12).contains(&value) {
        return Err(format!("\"{limit}\" is out of range"));
    }
    Ok(SteadyState {
        bandwidth,
        slope,
        limit_millionths: (value * 1e6).round() as u64,
        percent,
        window_ns: 0,
        ramp_ns: 0,
        interval_ns: STEADY_INTERVAL_NS,
    })
}

/// The default of `steadystate`, as in fio: `iops_slope:0.01%`.
pub const STEADY_DEFAULT: SteadyState = SteadyState {
    bandwidth: false,
    slope: true,
    limit_millionths: 100,
    percent: true,
    window_ns: 0,
    ramp_ns: 0,
    interval_ns: STEADY_INTERVAL_NS,
};

/// The default of `steadystate_check_interval`, and the shortest time in which a figure says something.
pub const STEADY_INTERVAL_NS: u64 = 1_000_000_000;

/// `verify=`; None for 0.
pub fn verify(text: &str) -> Result<Option<VerifyKind>, String> {
    Ok(Some(match text.trim() {
        "0" => return Ok(None),
        "crc32c" | "crc32c-intel" => VerifyKind::Crc32c,
        "crc64" => VerifyKind::Crc64,
        "crc32" => VerifyKind::Crc32,
        "crc16" => VerifyKind::Crc16,
        "crc7" => VerifyKind::Crc7,
        "xxhash" => VerifyKind::Xxhash,
        "md5" => VerifyKind::Md5,
        "sha1" => VerifyKind::Sha1,
        "sha256" => VerifyKind::Sha256,
        "sha512" => VerifyKind::Sha512,
        "sha3-224" => VerifyKind::Sha3(224),
        "sha3-256" => VerifyKind::Sha3(256),
        "sha3-384" => VerifyKind::Sha3(384),
        "sha3-512" => VerifyKind::Sha3(512),
        "meta" => VerifyKind::HeaderOnly,
        "pattern" => VerifyKind::PatternOnly,
        "pattern_hdr" => VerifyKind::PatternHeader,
        "null" => VerifyKind::Null,
        other => return Err(super::not_one_of(other, super::table::VERIFY_WORDS)),
    }))
}

/// fio's limit of a pattern.
const MOST_PATTERN_BYTES: usize = 16 << 20;

/// A pattern: `0xdeadbeef`, `"text"`, `-12` (little-endian without leading zeros), `'file'`, `%o`, one after the other.
pub fn pattern(text: &str, with_offset: bool) -> Result<VerifyPattern, String> {
    let mut pattern = VerifyPattern::default();
    let mut rest = text.trim();
    while !rest.is_empty() {
        rest = if let Some(quoted) = rest.strip_prefix('"') {
            let (inside, after) = quoted.split_once('"').ok_or("the closing \" is missing")?;
            pattern.bytes.extend(inside.bytes());
            after
        } else if let Some(quoted) = rest.strip_prefix('\'') {
            let (path, after) = quoted.split_once('\'').ok_or("the closing ' is missing")?;
            let file = std::fs::File::open(path).map_err(|error| format!("cannot open {path}: {error}"))?;
            // One byte more than may be: a longer file is refused below, and /dev/zero has an end.
            let room = MOST_PATTERN_BYTES.saturating_sub(pattern.bytes.len()) as u64 + 1;
            file.take(room).read_to_end(&mut pattern.bytes).map_err(|error| format!("cannot read {path}: {error}"))?;
            after
        } else if let Some(after) = rest.strip_prefix("%o") {
            if !with_offset {
                return Err("%o is for verify_pattern only".into());
            }
            pattern.offset_at.push(pattern.bytes.len());
            pattern.bytes.extend([0; 8]);
            after
        } else if let Some(hex) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
            let mut end = hex.find(|digit: char| !digit.is_ascii_hexdigit()).unwrap_or(hex.len());
            // In 0xff0x14 the second 0 belongs to the second number.
            if hex[end..].starts_with(['x', 'X']) && hex[..end].ends_with('0') {
                end -= 1;
            }
            if end == 0 {
                return Err(format!("\"{rest}\" has no hexadecimal digits after 0x"));
            }
            let digits = &hex.as_bytes()[..end];
            pattern.bytes.extend(digits.chunks(2).map(|pair| {
                pair.iter().fold(0, |byte, digit| byte << 4 | (*digit as char).to_digit(16).unwrap_or(0) as u8)
            }));
            &hex[end..]
        } else {
            let sign = usize::from(rest.starts_with(['-', '+']));
            let mut end = sign + rest[sign..].find(|digit: char| !digit.is_ascii_digit()).unwrap_or(rest.len() - sign);
            if rest[end..].starts_with(['x', 'X']) && rest[sign..end].len() > 1 && rest[..end].ends_with('0') {
                end -= 1;
            }
            let number = rest[..end].trim_start_matches('+').parse::<i32>().map_err(|_| {
                format!("\"{rest}\" is not a pattern: write 0xdeadbeef, \"text\" in double quotes, a number of 32 bits, or 'file' in single quotes")
            })?;
            let bytes = number.to_le_bytes();
            let length = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
            pattern.bytes.extend(&bytes[..length]);
            &rest[end..]
        };
        if pattern.bytes.len() > MOST_PATTERN_BYTES {
            return Err(format!("the pattern is longer than {MOST_PATTERN_BYTES} bytes"));
        }
    }
    if pattern.bytes.is_empty() { Err("the pattern is empty".into()) } else { Ok(pattern) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_separated_by_colons_that_are_not_part_of_them() {
        assert_eq!(split_names("a:b\\:c:"), ["a", "b:c"]);
        assert_eq!(split_names("gluster:x"), ["gluster", "x"]);
        let address = "trtype=tcp traddr=127.0.0.1 subnqn=nqn.2016-06.io.spdk:cnode1 ns=1";
        assert_eq!(split_names(address), [address]);
        assert_eq!(split_names(&address.replace("k:c", "k\\:c")), [address]);
        assert_eq!(split_names(&format!("{address}:{address}")), [address, address]);
        assert_eq!(
            split_names("gluster://h:24007/v/a:gluster+rdma://[::1]:7/v/b"),
            ["gluster://h:24007/v/a", "gluster+rdma://[::1]:7/v/b"]
        );
    }

    #[test]
    fn patterns_are_read_as_fio_documents_them() {
        let bytes = |text| pattern(text, true).expect(text).bytes;
        assert_eq!(bytes("\"abcd\""), b"abcd");
        assert_eq!(bytes("-1024"), [0x00, 0xfc, 0xff, 0xff]);
        assert_eq!(bytes("66"), [0x42]);
        assert_eq!(bytes("0"), [0]);
        assert_eq!(bytes("0xFF0X1"), [0xff, 0x01]);
        assert_eq!(bytes("\"123\"0xFFeeCC"), [0x31, 0x32, 0x33, 0xff, 0xee, 0xcc]);
        assert_eq!(bytes("-100xab\"1\"%o\"2\""), [0xf6, 0xff, 0xff, 0xff, 0xab, b'1', 0, 0, 0, 0, 0, 0, 0, 0, b'2']);
        assert_eq!(pattern("%o0xdeadbeef%o", true).unwrap().offset_at, [0, 12]);
        assert!(pattern("%o", false).is_err());
        for nonsense in ["", "abc", "\"open", "'/nonexistent'", "0x", "99999999999", "%x"] {
            assert!(pattern(nonsense, true).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn names_split_at_unescaped_colons() {
        assert_eq!(split_names("/dev/a:/dev/b"), ["/dev/a", "/dev/b"]);
        assert_eq!(split_names("/dev/dsk/foo@3,0\\:c"), ["/dev/dsk/foo@3,0:c"]);
        assert_eq!(split_names("a::b:"), ["a", "b"]);
        assert_eq!(split_names(""), Vec::<String>::new());
    }

    #[test]
    fn shares_left_out_get_the_rest() {
        let mut reader = Reader::new(1024);
        let split = bssplit(&mut reader, "4k/10:64k/:32k/40,8k/").unwrap();
        assert_eq!(split.read, [(4096, 10.0), (65536, 50.0), (32768, 40.0)]);
        assert_eq!(split.write, [(8192, 100.0)]);
        assert_eq!(split.trim, split.write);
        assert!(bssplit(&mut reader, "4k/60:8k/60").unwrap_err().contains("120%"));
        assert!(bssplit(&mut reader, "4k/60:8k/30").unwrap_err().contains("90%"));
        reader.lenient = true;
        assert_eq!(bssplit(&mut reader, "4k/100:8k/20").unwrap().read, [(4096, 80.0), (8192, 20.0)]);
        assert_eq!(bssplit(&mut reader, "4k/60:8k/60").unwrap().read, [(4096, 60.0), (8192, 40.0)]);
    }

    #[test]
    fn directions_are_filled_in_as_fio_does() {
        let parse = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
        assert_eq!(each("1", parse), Ok(PerDirection { read: Some(1), write: Some(1), trim: Some(1) }));
        assert_eq!(each("1,2", parse), Ok(PerDirection { read: Some(1), write: Some(2), trim: Some(2) }));
        assert_eq!(each("1,", parse), Ok(PerDirection { read: Some(1), write: None, trim: None }));
        assert_eq!(each(",2", parse), Ok(PerDirection { read: None, write: Some(2), trim: Some(2) }));
        assert_eq!(each("1,,3", parse), Ok(PerDirection { read: Some(1), write: None, trim: Some(3) }));
        assert!(each("1,2,3,4", parse).is_err());
        assert!(each(",", parse).is_err());
    }
}
