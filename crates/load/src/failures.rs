//! The clones of a plan that cannot start: each refuses the run, or fails alone.

use measure::schema::JobError;

use crate::{Error, ErrorKind};

/// For each clone of a plan, the error with which it failed before any clone began.
#[derive(Debug, Default)]
pub struct Failures {
    /// True if a clone that cannot start fails alone, as in fio; false if it refuses the whole run.
    pub alone: bool,
    by_seat: Vec<Option<JobError>>,
}

impl Failures {
    /// No failures yet. With `alone`, a clone that cannot start fails alone.
    pub fn new(alone: bool) -> Failures {
        Failures { alone, by_seat: Vec::new() }
    }

    /// Keeps the error of the clone in the seat.
    ///
    /// # Errors
    /// The same error where it refuses the whole run: if no clone fails alone, and always where Plimsoll protects data
    /// or has a defect.
    pub fn of(&mut self, seat: usize, error: Error) -> Result<(), Error> {
        if !self.alone || matches!(error.kind, ErrorKind::Refused | ErrorKind::Internal) {
            return Err(error);
        }
        self.put(seat, JobError { errno: error.errno(), message: error.to_string() });
        Ok(())
    }

    /// Keeps the error of all clones of a job, as [`Failures::of`] does for one clone.
    ///
    /// # Errors
    /// As [`Failures::of`].
    pub fn of_all(&mut self, seats: std::ops::Range<usize>, error: Error) -> Result<(), Error> {
        let first = seats.start;
        self.of(first, error)?;
        let kept = self.by_seat[first].clone();
        seats.skip(1).for_each(|seat| kept.iter().for_each(|error| self.put(seat, error.clone())));
        Ok(())
    }

    /// True if the clone in the seat has failed.
    pub fn has(&self, seat: usize) -> bool {
        self.by_seat.get(seat).is_some_and(Option::is_some)
    }

    /// Takes the error of the clone in the seat.
    pub fn take(&mut self, seat: usize) -> Option<JobError> {
        self.by_seat.get_mut(seat)?.take()
    }

    /// The first error counts.
    fn put(&mut self, seat: usize, error: JobError) {
        if self.by_seat.len() <= seat {
            self.by_seat.resize_with(seat + 1, || None);
        }
        self.by_seat[seat].get_or_insert(error);
    }
}
