//! The choice of the next file: `file_service_type`, over the files that are open (`openfiles`) and not finished.

use super::random::Random;
use super::shape::Shape;
use crate::job::{FileService, Files};

/// Decides which file serves the next op.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    kind: Kind,
    files: u32,
    /// Files at work at once.
    open: u32,
    /// Files at work. In a ring for turns, in any order for chance.
    active: Vec<u32>,
    /// Round robin: `next[file]` is served after it.
    next: Vec<u32>,
    previous: u32,
    current: u32,
    /// The first file that has not been at work in this pass.
    waiting: u32,
    /// Ops that the present file is given before the next, and how many it has left.
    ops: u32,
    left: u32,
    remaining: u32,
}

#[derive(Clone, Debug)]
enum Kind {
    /// In turn; a file is left when its ops are used up or, for `sequential`, never before it is finished.
    Ring {
        sequential: bool,
    },
    Chance(Option<Shape>),
}

impl Turns {
    pub fn new(job: &Files, files: u32, random: &mut Random) -> Turns {
        let kind = match job.service {
            FileService::RoundRobin => Kind::Ring { sequential: false },
            FileService::Sequential => Kind::Ring { sequential: true },
            FileService::Random => Kind::Chance(None),
            FileService::Distributed(distribution) => {
                Kind::Chance(Shape::new(distribution, u64::from(files), random).map(Shape::straight))
            }
        };
        // A distribution is over all files: those that are not open would bend it.
        let open =
            if matches!(kind, Kind::Chance(Some(_))) { files } else { job.open.unwrap_or(files).clamp(1, files) };
        let mut turns = Turns {
            kind,
            files,
            open,
            active: Vec::with_capacity(open as usize),
            next: vec![0; files as usize],
            previous: 0,
            current: 0,
            waiting: 0,
            ops: job.service_ops.max(1),
            left: 0,
            remaining: 0,
        };
        turns.rewind();
        turns
    }

    /// True if the choice follows a distribution: then files start over instead of being finished.
    pub fn distributed(&self) -> bool {
        matches!(self.kind, Kind::Chance(Some(_)))
    }

    /// True if every file is finished.
    pub fn all_finished(&self) -> bool {
        self.remaining == 0
    }

    /// All files take part again, from the first.
    pub fn rewind(&mut self) {
        self.active.clear();
        self.active.extend(0..self.open);
        for file in 0..self.open {
            self.next[file as usize] = (file + 1) % self.open;
        }
        self.previous = self.open - 1;
        self.current = 0;
        self.waiting = self.open;
        self.left = self.ops;
        self.remaining = self.files;
    }

    /// The file to serve; None when all are finished.
    #[inline(always)]
    pub fn choose(&mut self, random: &mut Random) -> Option<u32> {
        if self.remaining == 0 {
            return None;
        }
        if self.files == 1 {
            return Some(0);
        }
        self.choose_among(random)
    }

    fn choose_among(&mut self, random: &mut Random) -> Option<u32> {
        match &self.kind {
            Kind::Ring { sequential: true } => {}
            Kind::Ring { sequential: false } => {
                if self.left == 0 {
                    self.previous = self.current;
                    self.current = self.next[self.current as usize];
                    self.left = self.ops;
                }
                self.left -= 1;
            }
            Kind::Chance(shape) => {
                if self.left == self.ops || self.left == 0 {
                    self.current = match shape {
                        // Finished files are not drawn. With a distribution, a file is finished only if it can serve
                        // nothing at all.
                        Some(shape) => shape.draw(random) as u32,
                        None => self.active[random.below(self.active.len() as u64) as usize],
                    };
                    self.left = self.ops;
                }
                self.left -= 1;
            }
        }
        Some(self.current)
    }

    /// The file just chosen has nothing left to do in this pass: the next that waits takes its place.
    pub fn finish(&mut self) {
        self.remaining -= 1;
        let finished = self.current;
        let entering = (self.waiting < self.files).then_some(self.waiting);
        self.left = self.ops;
        if let Kind::Chance(shape) = &self.kind {
            if shape.is_none()
                && let Some(at) = self.active.iter().position(|&file| file == finished)
            {
                match entering {
                    Some(file) => self.active[at] = file,
                    None => drop(self.active.swap_remove(at)),
                }
            }
        } else {
            let after = self.next[finished as usize];
            // It comes last, so that files are begun in their order.
            let successor = match entering {
                Some(file) if after == finished => {
                    self.next[file as usize] = file;
                    self.previous = file;
                    file
                }
                Some(file) => {
                    self.next[self.previous as usize] = file;
                    self.next[file as usize] = after;
                    self.previous = file;
                    after
                }
                None => {
                    self.next[self.previous as usize] = after;
                    after
                }
            };
            self.current = successor;
        }
        self.waiting += u32::from(entering.is_some());
    }
}
