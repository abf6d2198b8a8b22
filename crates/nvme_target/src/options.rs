//! The settings of a target. Each has a default that serves.

use std::time::Duration;

use nvme::spec::oncs;

/// The settings that a [`Target`](super::Target) is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that serve connections, each with an event loop and a separate pacer; 1 to 256.
    pub reactors: usize,
    /// The processor of each reactor, in order; empty leaves them to the scheduler.
    pub cpus: Vec<u32>,
    /// The way in which reactors wait for their next command. `Always` takes a whole processor each.
    pub poll: pace::Poll,
    /// True if connections move from busy reactors to others that have time.
    pub balances: bool,
    /// The admission method and the one memory budget of all reactors together.
    pub pacing: pace::Config,
    /// The largest read or write in bytes: a power of two, 8 KiB to 8 MiB. At most half of the budget.
    pub max_io_bytes: u32,
    /// Bytes of data that an I/O command may carry in its capsule; 0 to 64 KiB, a multiple of 16.
    pub in_capsule_bytes: u32,
    /// Receives for capsules of hosts over RDMA, which all connections of a reactor to one device share; 16 to 65536,
    /// and at most what the device has.
    pub receives: u32,
    /// Reads that succeed have no completion beside their data, for hosts that have disabled SQ flow control (the
    /// SUCCESS flag of C2HData).
    pub c2h_success: bool,
    /// Bits of ONCS, of optional commands that the target neither names in Identify nor carries out.
    pub hidden_commands: u16,
    /// True if the target hides Compare and Write as one operation (FUSES), and refuses it.
    pub hides_fused: bool,
    /// The granularity of keep-alive timeouts that hosts are told (KAS), in units of 100 ms.
    pub keep_alive_units: u16,
    /// The shortest keep-alive timeout in milliseconds: shorter ones become this one. A host may have no timeout.
    pub least_keep_alive_ms: u32,
    /// Bounds on what hosts may take.
    pub limits: Limits,
    /// The firmware revision that controllers report: at most 8 printable characters.
    pub firmware: String,
    /// True if devices count the latencies of their ops from the beginning ([`Latencies`](super::Latencies)).
    pub counts_latencies: bool,
    /// True if `plimsoll top` shows this target while it runs.
    pub publish: bool,
}

/// Bounds on what hosts may take. The target refuses everything beyond a bound or lets it wait; other hosts do not
/// notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// TCP connections of all hosts together. One more takes the place of a guest, or is closed at once if there is
    /// none. Hosts that are let in without being listed have three quarters of them at most.
    pub connections: u32,
    /// Guests at most: connections that are not connected to a subsystem yet, have not authenticated yet, or ask
    /// the discovery service. One more takes the place of the oldest from the address that most of them come from.
    pub guests: u32,
    /// TCP connections per host NQN.
    pub connections_per_host: u32,
    /// I/O queues per controller, 1 to 64.
    pub queues: u16,
    /// Entries per I/O queue, 2 to 4096.
    pub queue_depth: u16,
    /// Entries per admin queue, 2 to 4096.
    pub admin_queue_depth: u16,
    /// The time in milliseconds in which a host must acknowledge what was sent to it, before the system closes the
    /// connection (TCP_USER_TIMEOUT, tcp(7)); `None` leaves it to the system.
    pub ack_timeout_ms: Option<u32>,
    /// Bytes of data in flight per host NQN and reactor; `None` leaves it to the pacer. A host beyond it is not read
    /// from.
    pub bytes_per_host: Option<u64>,
    /// Bytes that the kernel may hold for one connection on their way to its host (SO_SNDBUF; Linux grants twice as
    /// much, socket(7)); `None` leaves them to the system, which lets them grow to megabytes that no pacer counts.
    pub send_buffer: Option<u64>,
    /// The time in which a new connection must send its ICReq, and again the time for its Connect.
    pub handshake: Duration,
    /// The time in which a connection that must authenticate must have done so.
    pub proof: Duration,
    /// The period in which a host in the middle of a unit, or of transfers that were asked for with R2T, must send on:
    /// at least `bytes_per_s` on average.
    pub stall: Duration,
    /// The time for which the pacer may hold a command. Then the target tells the host to send it again, long before it
    /// loses patience (Linux waits for 30 s and then resets the controller).
    pub hold: Duration,
    /// The period over which a peer must take at least `bytes_per_s` of the bytes for it on average.
    pub send_stall: Duration,
    /// The least rate of a peer that is awaited, in each direction. Any network is faster by orders of magnitude; a
    /// peer that lets single bytes drip is not.
    pub bytes_per_s: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 16_384,
            guests: 4096,
            connections_per_host: 16_384,
            queues: 64,
            queue_depth: 1024,
            admin_queue_depth: 4096,
            ack_timeout_ms: None,
            bytes_per_host: None,
            send_buffer: Some(256 << 10),
            handshake: Duration::from_secs(10),
            // A proof of a large group takes seconds on a small machine.
            proof: Duration::from_secs(120),
            stall: Duration::from_secs(30),
            hold: Duration::from_secs(10),
            send_stall: Duration::from_secs(60),
            bytes_per_s: 1024,
        }
    }
}

impl Options {
    /// FUSES: the target carries out Compare and Write, unless it hides that or Compare.
    pub(super) fn fused_operations(&self) -> u16 {
        u16::from(!self.hides_fused && self.hidden_commands & oncs::COMPARE == 0)
    }

    /// True if hosts cannot reserve namespaces: the commands, features and log page of reservations are not there.
    pub fn hides_reservations(&self) -> bool {
        self.hidden_commands & oncs::RESERVATIONS != 0
    }

    /// The keep-alive timeout in milliseconds of a host that asks for this one, in whole units of KAS; 0 is none.
    pub(super) fn keep_alive_ms(&self, asked_ms: u32) -> u32 {
        let unit_ms = u64::from(self.keep_alive_units.max(1)) * 100;
        let least_ms = if asked_ms == 0 { 0 } else { asked_ms.max(self.least_keep_alive_ms) };
        let rounded_ms = u64::from(least_ms).next_multiple_of(unit_ms);
        // The largest timeouts have no room for a unit more.
        u32::try_from(rounded_ms).unwrap_or(u32::MAX)
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            reactors: 1,
            cpus: Vec::new(),
            poll: pace::Poll::default(),
            balances: true,
            pacing: pace::Config::auto(None),
            max_io_bytes: 1 << 20,
            in_capsule_bytes: 4096,
            receives: 1024,
            c2h_success: true,
            hidden_commands: 0,
            hides_fused: false,
            keep_alive_units: 10,
            least_keep_alive_ms: 0,
            limits: Limits::default(),
            firmware: env!("CARGO_PKG_VERSION").to_string(),
            counts_latencies: false,
            publish: true,
        }
    }
}
