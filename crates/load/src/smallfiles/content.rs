//! The contents of files: a function of file, place and generation, cheap to write and exact to check.
//!
//! Every 4 KiB block of a file begins with a stamp of 32 bytes (which file, which block, which generation) and goes on
//! with random bytes from a pool, chosen by file and block. A check tells a block that is stale, misplaced, of another
//! file or damaged from the right one, and no two blocks are alike.

use job::Job;
use job::job::Buffers;
use job::workload::random::mix;

use crate::content::Filler;

/// Bytes of a block.
const BLOCK: usize = 4096;
const STAMP: usize = 32;
const MAGIC: u64 = u64::from_le_bytes(*b"plimsoll");
/// Blocks of the pool: 1 MiB, more than compressing file systems look back.
const POOL: usize = 256;

/// The contents of all files of a run. The same seed gives the same contents.
#[derive(Clone, Debug)]
pub struct Content {
    seed: u64,
    pool: Vec<u8>,
    /// True if no byte is from the pool: every block has random bytes of its own.
    incompressible: bool,
}

/// The identity of a file: the thread that made it, and its number among the files of that thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    /// The number of the thread that made the file.
    pub thread: u32,
    /// The number of the file among the files of its thread.
    pub file: u64,
}

/// A difference between the contents that were read and the contents that were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Offset in the file of the first byte that differs.
    pub offset: u64,
    /// A description of the bytes that were read instead.
    pub what: String,
}

impl Content {
    /// The contents for a seed.
    pub fn new(seed: u64) -> Content {
        let mut pool = vec![0; POOL * BLOCK];
        let buffers = Buffers { refill: true, ..Job::default().buffers };
        Filler::new(&buffers, seed).fill(&mut pool);
        Content { seed, pool, incompressible: false }
    }

    /// The contents for a seed, of which no block has anything in common with another.
    pub fn incompressible(seed: u64) -> Content {
        Content { incompressible: true, ..Content::new(seed) }
    }

    /// Fills `buffer` with the bytes of the file from `offset` on, in a generation.
    pub fn fill(&self, buffer: &mut [u8], id: FileId, offset: u64, generation: u32) {
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let (block, within) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let len = (BLOCK - within).min(buffer.len() - done);
            self.fill_part(&mut buffer[done..done + len], id, block, within, generation);
            done += len;
        }
    }

    /// Fills `buffer` with a part of one block, from byte `within` on.
    fn fill_part(&self, buffer: &mut [u8], id: FileId, block: u64, within: usize, generation: u32) {
        match self.incompressible {
            true => self.scatter(buffer, id, block, within),
            false => buffer.copy_from_slice(&self.body(id, block)[within..within + buffer.len()]),
        }
        if within < STAMP {
            let len = (STAMP - within).min(buffer.len());
            buffer[..len].copy_from_slice(&self.stamp(id, block, generation)[within..within + len]);
        }
    }

    /// Random bytes of the block: word N is a function of the block and N, so that any part can be made alone.
    fn scatter(&self, buffer: &mut [u8], id: FileId, block: u64, within: usize) {
        let start = mix(mix(mix(self.seed) ^ id.file) ^ u64::from(id.thread) ^ block.rotate_left(32));
        let mut done = 0;
        while done < buffer.len() {
            let at = within + done;
            let word = mix(start.wrapping_add((at / 8) as u64)).to_le_bytes();
            let part = &word[at % 8..];
            let len = part.len().min(buffer.len() - done);
            buffer[done..done + len].copy_from_slice(&part[..len]);
            done += len;
        }
    }

    fn body(&self, id: FileId, block: u64) -> &[u8] {
        let chosen = mix(mix(id.file) ^ u64::from(id.thread) ^ block.rotate_left(32)) as usize % POOL;
        &self.pool[chosen * BLOCK..(chosen + 1) * BLOCK]
    }

    fn stamp(&self, id: FileId, block: u64, generation: u32) -> [u8; STAMP] {
        let mut stamp = [0; STAMP];
        stamp[..8].copy_from_slice(&(MAGIC ^ mix(self.seed)).to_le_bytes());
        stamp[8..12].copy_from_slice(&id.thread.to_le_bytes());
        stamp[12..16].copy_from_slice(&generation.to_le_bytes());
        stamp[16..24].copy_from_slice(&id.file.to_le_bytes());
        stamp[24..].copy_from_slice(&block.to_le_bytes());
        stamp
    }

    /// Compares the bytes that were read at `offset` with the contents of the file; blocks may be of any of
    /// `generations`. Returns the number of blocks that it compared.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(
        &self,
        read: &[u8],
        id: FileId,
        offset: u64,
        generations: std::ops::RangeInclusive<u32>,
    ) -> Result<u64, Mismatch> {
        let (mut done, mut blocks) = (0, 0);
        let mut expected = [0; BLOCK];
        while done < read.len() {
            let at = offset + done as u64;
            let (block, within) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let len = (BLOCK - within).min(read.len() - done);
            let got = &read[done..done + len];
            // The generation is in the stamp. Where the stamp is cut off, or holds another generation, the newest one
            // stands for it.
            let generation = match got.get(12usize.saturating_sub(within)..16usize.saturating_sub(within)) {
                Some(bytes) if within <= 12 && bytes.len() == 4 => {
                    let found = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                    if generations.contains(&found) { found } else { *generations.end() }
                }
                _ => *generations.end(),
            };
            let expected = &mut expected[..len];
            self.fill_part(expected, id, block, within, generation);
            if got != expected && !self.partial_stamp(got, id, block, within, &generations) {
                let first = got.iter().zip(expected.iter()).position(|(a, b)| a != b).unwrap_or(0);
                return Err(Mismatch { offset: at + first as u64, what: self.describe(got, within, &generations) });
            }
            blocks += 1;
            done += len;
        }
        Ok(blocks)
    }

    /// True if a piece that holds only part of the generation number is right in one of the generations: short files
    /// and odd records have such pieces.
    fn partial_stamp(
        &self,
        got: &[u8],
        id: FileId,
        block: u64,
        within: usize,
        generations: &std::ops::RangeInclusive<u32>,
    ) -> bool {
        let cut = within < 16 && within + got.len() > 12 && !(within <= 12 && within + got.len() >= 16);
        let mut expected = [0; BLOCK];
        let expected = &mut expected[..got.len()];
        cut && generations.clone().take(1024).any(|generation| {
            self.fill_part(expected, id, block, within, generation);
            expected == got
        })
    }

    /// A description of a block that is not the expected one.
    fn describe(&self, got: &[u8], within: usize, generations: &std::ops::RangeInclusive<u32>) -> String {
        if got.iter().all(|&byte| byte == 0) {
            return "zeros".into();
        }
        let word =
            |at: usize| got.get(at..at + 8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()));
        let half =
            |at: usize| got.get(at..at + 4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap_or_default()));
        let (Some(magic), Some(thread), Some(generation), Some(file), Some(block), 0) =
            (word(0), half(8), half(12), word(16), word(24), within)
        else {
            return "other bytes".into();
        };
        if magic ^ mix(self.seed) != MAGIC {
            return "bytes that this seed did not write".into();
        }
        let stale = if generations.contains(&generation) { "" } else { ", of an overwritten generation" };
        format!("block {block} of file {file} of thread {thread}, generation {generation}{stale}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: FileId = FileId { thread: 1, file: 42 };

    #[test]
    fn pieces_make_up_the_whole() {
        let content = Content::new(9);
        let mut whole = vec![0; 20_000];
        content.fill(&mut whole, ID, 0, 3);
        for size in [1, 7, 512, 4096, 5000] {
            let mut pieces = vec![0; whole.len()];
            for (index, piece) in pieces.chunks_mut(size).enumerate() {
                content.fill(piece, ID, (index * size) as u64, 3);
            }
            assert_eq!(pieces, whole, "{size}");
            for (index, piece) in whole.chunks(size).enumerate() {
                content.check(piece, ID, (index * size) as u64, 3..=3).unwrap();
            }
        }
        assert_eq!(content.check(&whole, ID, 0, 0..=5).unwrap(), 5);
        let again = Content::new(9);
        again.check(&whole, ID, 0, 3..=3).unwrap();
    }

    #[test]
    fn every_kind_of_damage_is_found_where_it_is() {
        let content = Content::new(9);
        let mut whole = vec![0; 16384];
        content.fill(&mut whole, ID, 0, 1);
        let found = |bytes: &[u8], id, offset, generations| content.check(bytes, id, offset, generations).unwrap_err();
        for at in [0, 31, 32, 4095, 4096, 9999, 16383] {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            let mismatch = content.check(&damaged, ID, 0, 0..=1).unwrap_err();
            assert!(mismatch.offset <= at as u64 && mismatch.offset / 4096 == at as u64 / 4096, "{at}: {mismatch:?}");
        }
        let other = found(&whole, FileId { file: 43, ..ID }, 0, 1..=1);
        assert_eq!((other.offset, other.what.as_str()), (16, "block 0 of file 42 of thread 1, generation 1"));
        assert!(found(&whole, FileId { thread: 2, ..ID }, 0, 1..=1).what.contains("thread 1"));
        assert!(found(&whole[..4096], ID, 4096, 1..=1).what.contains("block 0"));
        assert!(found(&whole, ID, 0, 2..=3).what.contains("overwritten generation"));
        let mut zeros = whole.clone();
        zeros[8192..12288].fill(0);
        assert_eq!(found(&zeros, ID, 0, 1..=1), Mismatch { offset: 8192, what: "zeros".into() });
        assert!(Content::new(10).check(&whole, ID, 0, 1..=1).unwrap_err().what.contains("seed"));
    }

    #[test]
    fn short_files_are_checked_in_every_generation() {
        let content = Content::new(1);
        for len in 1..40 {
            let mut bytes = vec![0; len];
            content.fill(&mut bytes, ID, 0, 3);
            content.check(&bytes, ID, 0, 0..=5).unwrap();
            bytes[len - 1] ^= 0x80;
            assert!(content.check(&bytes, ID, 0, 0..=5).is_err(), "{len}");
        }
    }

    #[test]
    fn incompressible_contents_come_in_pieces_and_share_no_words() {
        let content = Content::incompressible(9);
        let mut whole = vec![0; 40_000];
        content.fill(&mut whole, ID, 0, 3);
        for size in [1, 7, 512, 5000] {
            let mut pieces = vec![0; whole.len()];
            for (index, piece) in pieces.chunks_mut(size).enumerate() {
                content.fill(piece, ID, (index * size) as u64, 3);
            }
            assert_eq!(pieces, whole, "{size}");
        }
        content.check(&whole, ID, 0, 3..=3).unwrap();
        let mut other = vec![0; 40_000];
        content.fill(&mut other, FileId { file: 43, ..ID }, 0, 3);
        // All but the stamps, whose words are the same in many blocks.
        let words = |bytes: &[u8]| {
            bytes.chunks(BLOCK).flat_map(|block| block[STAMP..].chunks(8)).map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        let all = [words(&whole), words(&other)].concat();
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), all.len());
    }

    #[test]
    fn blocks_are_unlike_each_other() {
        let content = Content::new(1);
        let mut bytes = vec![0; 1 << 20];
        content.fill(&mut bytes, ID, 0, 0);
        let blocks: std::collections::HashSet<&[u8]> = bytes.chunks(BLOCK).collect();
        assert_eq!(blocks.len(), 256);
    }
}
