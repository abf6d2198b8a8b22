//! The words with which a connection begins: the private data of a request, and what both sides agree to (NVM Express
//! RDMA Transport Specification 1.0, section 3.2).

use verbs::stack::{Limits, Reads};

use nvme::spec::rdma::{ConnectAccept, ConnectRequest, Reject};

/// Places of a send queue at most: answers beyond them wait in the target. That many pieces of work keep any card busy.
const MOST_SENDS: u32 = 256;
/// Places of a send queue at least: the data of an answer and the answer, twice.
const LEAST_SENDS: u32 = 4;

/// The bounds of the target on new connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// I/O queues of a controller.
    pub queues: u16,
    /// Entries of an I/O queue, and of an admin queue.
    pub queue_depth: u16,
    pub admin_queue_depth: u16,
}

/// The terms of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// The controller that an I/O queue is for, if the host says.
    pub controller: Option<u16>,
    /// Commands that may be on their way to the target.
    pub entries: u16,
    /// Places of the target's send queue.
    pub sends: u32,
    /// Responses that the host has receives for.
    pub responses: u32,
    /// RDMA READs in flight.
    pub reads: Reads,
}

impl Terms {
    /// The terms of a host that sends this private data and lets the target agree to `reads`.
    ///
    /// # Errors
    /// The reason of the refusal.
    pub fn of(private_data: &[u8], reads: Reads, limits: &Limits, bounds: Bounds) -> Result<Terms, Reject> {
        let request = ConnectRequest::of(private_data)?;
        if request.qid > bounds.queues {
            return Err(Reject::QID);
        }
        let most = if request.qid == 0 { bounds.admin_queue_depth } else { bounds.queue_depth };
        let entries = request.send_entries();
        // A queue has two entries at least (Base specification 2.0, section 3.1.3.1).
        if entries < 2 || entries > u32::from(most) {
            return Err(Reject::HSQSIZE);
        }
        if request.hrqsize == 0 {
            return Err(Reject::HRQSIZE); // no response could ever reach the host
        }
        let reads = Reads { serves: 0, issues: reads.issues.min(limits.reads.issues) };
        if reads.issues == 0 {
            return Err(Reject::IRD); // the data of writes could not be fetched
        }
        let controller = (request.qid != 0 && request.cntlid != 0).then_some(request.cntlid);
        let sends = (2 * entries).clamp(LEAST_SENDS, MOST_SENDS).min(limits.queue_places);
        if sends < LEAST_SENDS {
            return Err(Reject::NO_RESOURCES);
        }
        Ok(Terms { controller, entries: entries as u16, sends, responses: request.hrqsize.into(), reads })
    }

    /// The private data of the acceptance.
    pub fn acceptance(&self) -> [u8; ConnectAccept::BYTES] {
        ConnectAccept { recfmt: 0, crqsize: self.entries }.write()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { queues: 8, queue_depth: 1024, admin_queue_depth: 128 };
    const LIMITS: Limits = Limits {
        completions: 1 << 15,
        queue_places: 4096,
        shared_places: 4096,
        parts: 16,
        reads: Reads { serves: 16, issues: 16 },
        is_iwarp: false,
    };
    const READS: Reads = Reads { serves: 3, issues: 32 };
    const GOOD: ConnectRequest = ConnectRequest { recfmt: 0, qid: 1, hrqsize: 128, hsqsize: 127, cntlid: 5 };

    fn terms(request: ConnectRequest) -> Result<Terms, Reject> {
        Terms::of(&request.write(), READS, &LIMITS, BOUNDS)
    }

    #[test]
    fn both_sides_agree_to_what_both_can() {
        let reads = Reads { serves: 0, issues: 16 };
        assert_eq!(terms(GOOD), Ok(Terms { controller: Some(5), entries: 128, sends: 256, responses: 128, reads }));
        let admin = terms(ConnectRequest { qid: 0, hsqsize: 31, ..GOOD }).unwrap();
        assert_eq!(admin, Terms { controller: None, entries: 32, sends: 64, responses: 128, reads });
        assert_eq!(ConnectAccept::of(&admin.acceptance()).unwrap().crqsize, 32);
        assert_eq!(terms(ConnectRequest { hsqsize: 1, ..GOOD }).unwrap().sends, LEAST_SENDS);
        let few = Limits { queue_places: 16, ..LIMITS };
        assert_eq!(Terms::of(&GOOD.write(), READS, &few, BOUNDS).unwrap().sends, 16);
    }

    #[test]
    fn each_refusal_has_its_reason() {
        assert_eq!(Terms::of(&[0; 31], READS, &LIMITS, BOUNDS), Err(Reject::LENGTH));
        assert_eq!(terms(ConnectRequest { recfmt: 1, ..GOOD }), Err(Reject::RECFMT));
        assert_eq!(terms(ConnectRequest { qid: 9, ..GOOD }), Err(Reject::QID));
        for hsqsize in [0, 1024, u16::MAX] {
            assert_eq!(terms(ConnectRequest { hsqsize, ..GOOD }), Err(Reject::HSQSIZE), "{hsqsize}");
        }
        assert_eq!(terms(ConnectRequest { qid: 0, ..GOOD }).map(|terms| terms.entries), Ok(128));
        assert_eq!(terms(ConnectRequest { qid: 0, hsqsize: 128, ..GOOD }), Err(Reject::HSQSIZE));
        assert_eq!(terms(ConnectRequest { hrqsize: 0, ..GOOD }), Err(Reject::HRQSIZE));
        let none = Reads { serves: 8, issues: 0 };
        assert_eq!(Terms::of(&GOOD.write(), none, &LIMITS, BOUNDS), Err(Reject::IRD));
        let tiny = Limits { queue_places: 3, ..LIMITS };
        assert_eq!(Terms::of(&GOOD.write(), READS, &tiny, BOUNDS), Err(Reject::NO_RESOURCES));
    }
}
