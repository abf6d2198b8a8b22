//! The bytes of each file that a clone uses: `size`, `filesize`, `offset` and their relatives, as fio's
//! filesetup.c computes them. The functions look at no file: the caller passes the facts about existing files in.

use job::Job;
use job::job::Amount;
use job::workload::FileExtent;

use crate::Error;

/// A file as it is before the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Existing {
    /// Bytes of the file; 0 if it does not exist, `u64::MAX` if it has no end (character devices).
    pub bytes: u64,
    /// True if the file can be made larger: regular files.
    pub growable: bool,
}

/// The extents of clone `clone`. `free` is how many bytes the file system has left, for `fill_device`; None where the
/// files are not of this host.
///
/// # Errors
/// No size, a size smaller than a block, an offset beyond the end.
pub(super) fn extents(
    job: &Job,
    clone: u32,
    names: &[String],
    existing: &[Existing],
    free: Option<u64>,
) -> Result<Vec<FileExtent>, Error> {
    let block = smallest_block(job);
    let count = existing.len() as u64;
    let extent = &job.extent;
    // A recorded log says which bytes of its files it needs, and may open files of which it needs none.
    let filled_up = free.filter(|_| extent.fill && extent.size.is_none() && extent.file_size.is_none());
    let may_be_empty = filled_up.is_some() || job.iolog.is_replay();
    let wanted = match extent.size {
        Some(Amount::Bytes(bytes)) => Some(bytes),
        _ => None,
    };
    let there: u64 =
        existing.iter().map(|file| if file.bytes == u64::MAX { 0 } else { file.bytes }).fold(0, u64::saturating_add);
    if wanted.unwrap_or(0) == 0 && there == 0 && !may_be_empty && extent.file_size.is_none() {
        let name = names.first().map_or("", String::as_str);
        let empty = if wanted == Some(0) { "size=0" } else { "the job has no size=, and the file is empty" };
        return Err(Error::usage("nothing to do on", name, format!("job {}: {empty}: give size=", job.name)));
    }
    // As in fio: files need not end at a block, and the first ones get what a division by many files leaves over.
    let share = |index: u64| wanted.map(|size| size / count + block * u64::from(index < size % count / block));
    let mut extents = Vec::new();
    for (index, (file, name)) in existing.iter().zip(names).enumerate() {
        let index = index as u64;
        let full = match extent.file_size {
            // Files within the range are taken as they are.
            Some((low, high)) if (low..=high).contains(&file.bytes) => file.bytes,
            Some((low, high)) if low == high => low,
            Some((low, high)) => (low + random(job.pattern.seed, clone, index) % (high - low + 1)) / block * block,
            None => share(index).filter(|&size| size > 0).unwrap_or(file.bytes),
        };
        let basis = if file.bytes == 0 || file.bytes == u64::MAX { full } else { file.bytes };
        let offset = start(job, clone, file, basis, block);
        if file.growable && extent.file_size.is_none() && wanted.is_some() {
            // size= counts from the offset: the file ends beyond it.
            extents.push(FileExtent { offset, size: full });
        } else {
            let end = if file.growable { full } else { file.bytes };
            if offset >= end && !may_be_empty {
                let hint = format!("offset {offset}, end {end}: see offset= and offset_increment= of job {}", job.name);
                return Err(Error::usage("the offset lies beyond the end of", name.clone(), hint));
            }
            let room = end.saturating_sub(offset);
            let size = if wanted.is_some() && extent.file_size.is_none() { full.min(room) } else { room.min(full) };
            extents.push(FileExtent { offset, size });
        }
        let last = extents.last_mut().expect("just pushed");
        if let Some(free) = filled_up
            && file.growable
        {
            // The storage ends the job, whatever it said before. Random offsets get a range that nothing can fill.
            let most = ((u64::MAX >> 1) - offset) / count;
            let spread = free.saturating_mul(2) / count;
            last.size = if job.rw.random { spread.max(block).min(most) } else { most } / block * block;
        }
        if extent.strided.is_some() && filled_up.is_none() && file.bytes != u64::MAX {
            // Zones that are skipped lead beyond size=, as in fio: size= is what the job transfers.
            last.size = last.size.max(file.bytes.saturating_sub(offset));
        } else if let Some(Amount::Percent(percent)) = extent.size
            && percent < 100.0
        {
            last.size = (percent_of(last.size.saturating_add(offset), percent)).min(last.size) / block * block;
        }
        // A file without an end (a character device) ends at the largest offset that system calls take.
        if last.size == u64::MAX {
            last.size = u64::MAX >> 1;
        }
    }
    let total = extents.iter().map(|extent| extent.size).fold(0, u64::saturating_add);
    if extents.iter().all(|extent| extent.size < block) && !job.iolog.is_replay() {
        let (name, files) = (names.first().map_or("", String::as_str), extents.len());
        let hint = format!("job {}: bs={block}, {total} bytes over {files} files: raise size= or lower bs=", job.name);
        return Err(Error::usage("the block size is larger than the range used of", name, hint));
    }
    Ok(extents)
}

/// The offset of the first byte that the clone uses.
fn start(job: &Job, clone: u32, file: &Existing, basis: u64, block: u64) -> u64 {
    if job.files.append && file.growable {
        return file.bytes;
    }
    let mut relative = false;
    let mut bytes = |amount| match amount {
        Amount::Bytes(bytes) => bytes,
        Amount::Percent(percent) => {
            relative = true;
            percent_of(basis, percent)
        }
    };
    let first = bytes(job.extent.offset);
    let step = bytes(job.extent.offset_increment);
    let offset = first.saturating_add(step.saturating_mul(u64::from(clone)));
    let align = if job.extent.offset_align > 0 { job.extent.offset_align } else { block };
    // Only an offset computed from a percentage is rounded to a boundary; an offset in bytes is meant as it stands.
    if relative { offset.checked_next_multiple_of(align).unwrap_or(offset) } else { offset }
}

/// The smallest block that the job issues.
pub(super) fn smallest_block(job: &Job) -> u64 {
    let used = job.rw.directions.iter().filter(|&(_, &used)| used);
    used.map(|(direction, _)| job.blocks.range[direction].0).min().unwrap_or(1).max(1)
}

fn percent_of(whole: u64, percent: f64) -> u64 {
    // Exact for whole percents, which is what people write.
    let millionths = (percent * 1e6).round() as u128;
    (u128::from(whole) * millionths / 100_000_000) as u64
}

/// SplitMix64 (Steele, Lea, Flood 2014) of the seed and the file: the same sizes every run.
fn random(seed: u64, clone: u32, file: u64) -> u64 {
    let mut z = seed ^ (u64::from(clone) << 40 | file).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
