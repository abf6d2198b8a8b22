//! The link of a rank that an agent has started: a pipe for what comes, and one for what goes.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::LINK;
use super::frame::Frame;
use crate::link::Link;

/// The link to the other ranks through an agent. Two threads wait in the pipes, so that the link itself never does.
#[derive(Debug)]
pub struct Pipes {
    rank: u32,
    size: u32,
    arrived: Receiver<(u32, Vec<u8>)>,
    leaves: Option<Sender<Frame>>,
    writer: Option<JoinHandle<()>>,
}

impl Pipes {
    /// The link of this process, rank `rank` of `size`; None if no agent has started it. `get` reads a variable of the
    /// environment.
    ///
    /// # Errors
    /// The error of opening the pipes; threads that cannot be started.
    pub fn join(rank: u32, size: u32, get: impl Fn(&str) -> Option<String>) -> Option<io::Result<Pipes>> {
        let link = get(LINK)?;
        let numbers = link.split_once(',').and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
        let missing = || io::Error::new(io::ErrorKind::InvalidInput, format!("{LINK}={link} names no two descriptors"));
        Some(numbers.ok_or_else(missing).and_then(|(from, to)| Pipes::over(rank, size, from, to)))
    }

    fn over(rank: u32, size: u32, from: u32, to: u32) -> io::Result<Pipes> {
        let mut from = File::open(format!("/proc/self/fd/{from}"))?;
        let mut to = File::options().write(true).open(format!("/proc/self/fd/{to}"))?;
        let (arrives, arrived) = channel();
        let (leaves, leaving) = channel::<Frame>();
        let read = move || {
            // A lost agent is found out by the silence of all others.
            while let Ok(Some(frame)) = Frame::read(&mut from) {
                if let Frame::Message(rank, bytes) = frame
                    && arrives.send((rank, bytes)).is_err()
                {
                    break;
                }
            }
        };
        let write = move || leaving.iter().take_while(|frame| frame.write(&mut to).is_ok()).for_each(drop);
        std::thread::Builder::new().name("link-in".into()).spawn(read)?;
        let writer = std::thread::Builder::new().name("link-out".into()).spawn(write)?;
        Ok(Pipes { rank, size, arrived, leaves: Some(leaves), writer: Some(writer) })
    }
}

impl Link for Pipes {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn send(&mut self, to: u32, bytes: Vec<u8>) {
        if let Some(leaves) = &self.leaves {
            let _ = leaves.send(Frame::Message(to, bytes)); // without an agent nobody takes it
        }
    }

    fn receive(&mut self) -> Option<(u32, Vec<u8>)> {
        self.arrived.try_recv().ok()
    }

    fn close(&mut self) {
        self.leaves = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join(); // a writer that panicked has nothing more to write
        }
    }
}
