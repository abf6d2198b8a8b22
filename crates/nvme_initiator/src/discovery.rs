//! Discovery: reads the subsystems of a target from the discovery log page.

use nvme::Field;
use nvme::spec::log::{self, DiscoveryEntry, DiscoveryHeader};
use nvme::spec::{DISCOVERY_NQN, GetLogPage, Nqn};

use super::connection::{Connection, Move, Purpose};
use super::controller::enable;
use super::dialer::Dialer;
use super::{Address, Error, Options, Transport};

/// A subsystem that a discovery service knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subsystem {
    /// The NQN of the subsystem.
    pub nqn: Nqn,
    /// The address of the subsystem.
    pub address: Address,
    /// True for another discovery service.
    pub is_referral: bool,
}

/// Entries of the queue.
const DEPTH: u32 = 32;
/// The most entries that are read: more than any service has, and no more memory than it takes.
const MAX_ENTRIES: u64 = 65_536;
/// Reading begins again when the log changes meanwhile.
const ATTEMPTS: u32 = 10;

/// The subsystems that the discovery service at `address` lets this host see over the transport of the address, without
/// the service itself.
///
/// # Errors
/// Nothing answers there, or not as a discovery service does.
pub fn discover(address: &Address, options: &Options) -> Result<Vec<Subsystem>, Error> {
    let service: Nqn = DISCOVERY_NQN.parse().expect("a constant");
    let mut connection = Dialer::new(address, &service, options).open(0, 0, DEPTH)?;
    let welcome = connection.join(&service, options, 0, 0, Purpose::Use)?;
    enable(&mut connection, welcome, options)?;
    for _ in 0..ATTEMPTS {
        let header = header(&mut connection)?;
        let mut found = Vec::new();
        for index in 0..header.numrec.min(MAX_ENTRIES) {
            let mut bytes = [0; DiscoveryEntry::BYTES];
            let offset = (index + 1) * DiscoveryEntry::BYTES as u64;
            read(&mut connection, offset, &mut bytes)?;
            found.extend(subsystem(&DiscoveryEntry::get(&bytes), address.transport));
        }
        let mut check = header;
        if header.numrec > 0 {
            check = self::header(&mut connection)?;
        }
        if check.genctr == header.genctr {
            return Ok(found);
        }
    }
    let why = "its log changes faster than this host can read it";
    Err(Error::new(format!("discovery at {}", address.place()), why, "", libc::EBUSY))
}

fn header(connection: &mut Connection) -> Result<DiscoveryHeader, Error> {
    let mut bytes = [0; DiscoveryHeader::BYTES];
    read(connection, 0, &mut bytes)?;
    Ok(DiscoveryHeader::read(&bytes))
}

fn read(connection: &mut Connection, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
    let page = GetLogPage { lid: log::DISCOVERY, lsp: 0, retain: false, length: bytes.len() as u64, offset };
    connection.succeed(page.command(0), Move::Receive(bytes)).map(drop)
}

/// The subsystem of an entry; None if it cannot be used here.
fn subsystem(entry: &DiscoveryEntry, transport: Transport) -> Option<Subsystem> {
    if entry.trtype != transport.trtype() || entry.subtype == DiscoveryEntry::CURRENT_DISCOVERY {
        return None;
    }
    let nqn = entry.subsystem().ok()?;
    let address = Address {
        transport,
        traddr: entry.traddr.as_str()?.to_string(),
        port: entry.trsvcid.as_str()?.parse().ok()?,
        ipv6: Some(entry.adrfam == 2),
        subnqn: Some(nqn.clone()),
        nsid: 0,
    };
    Some(Subsystem { nqn, address, is_referral: entry.subtype == DiscoveryEntry::REFERRAL })
}
