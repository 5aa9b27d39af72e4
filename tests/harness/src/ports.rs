//! Ports that nobody else takes, also not while the server that owns one is down.
//!
//! A port asked from the kernel (port 0) comes from the range from which it also gives outgoing
//! connections their ports, so it can be gone when a killed server wants it back. These ports come
//! from below that range, are tried by binding to them, and are held by a locked file for as long
//! as the value lives, so that harness processes running side by side keep apart.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Error;

/// Above the ports that well-known daemons use.
const LOWEST: u16 = 12_000;
/// The start of Linux's default range for outgoing connections (`ip_local_port_range`).
const EPHEMERAL: u16 = 32_768;

/// How far apart the ports of two processes with neighbouring ids start.
const STRIDE: u32 = 61;

/// A loopback port that belongs to this value until it is dropped.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _lock: File,
    reserved: Option<TcpListener>,
}

impl Port {
    /// Finds a free port and keeps it bound until [`Port::release`].
    pub(crate) fn reserve() -> Result<Self, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // One folder a user: nobody can lock another's files.
        let user = rustix::process::getuid().as_raw();
        let folder = std::env::temp_dir().join(format!("defragd-ports-{user}"));
        fs::create_dir_all(&folder)
            .map_err(|e| Error::io(format!("create {}", folder.display()), e))?;
        let highest = first_ephemeral().min(EPHEMERAL);
        let span = u32::from(highest - LOWEST);
        // Processes start far from each other, so that they seldom try the same port.
        let start = std::process::id().wrapping_mul(STRIDE);
        for _ in 0..span {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let place = start.wrapping_add(step) % span;
            // Less than the span, which is the difference of two ports.
            let number = LOWEST + place as u16;
            let path = folder.join(number.to_string());
            let lock = File::create(&path)
                .map_err(|e| Error::io(format!("create {}", path.display()), e))?;
            if lock.try_lock().is_err() {
                continue;
            }
            if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, number)) {
                return Ok(Self {
                    number,
                    _lock: lock,
                    reserved: Some(listener),
                });
            }
        }
        Err(Error::io(
            format!("find a free port from {LOWEST} to {highest}"),
            std::io::ErrorKind::AddrInUse.into(),
        ))
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Lets go of the socket just before the server binds to it. The port stays this value's.
    pub(crate) fn release(&mut self) {
        self.reserved = None;
    }
}

/// A loopback address that nothing else of this process listens on, and hardly anything of another
/// one: for servers that want a port of a certain number.
#[must_use]
pub fn own_address() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    // From 127.64.0.1 on, a block of 256 for each process.
    const FIRST: u32 = 0x7f40_0001;
    const BLOCKS: u32 = 0x4000;
    let block = std::process::id() % BLOCKS;
    Ipv4Addr::from_bits(FIRST + block * 256 + NEXT.fetch_add(1, Ordering::Relaxed) % 250)
}

fn first_ephemeral() -> u16 {
    fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .filter(|first| *first > LOWEST + 1_000)
        .unwrap_or(EPHEMERAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_port_belongs_to_one_value_also_while_nobody_listens() {
        let mut ports: Vec<_> = (0..20).map(|_| Port::reserve().unwrap()).collect();
        ports.iter_mut().for_each(Port::release);
        let more: Vec<_> = (0..20).map(|_| Port::reserve().unwrap()).collect();
        let numbers: HashSet<_> = ports.iter().chain(&more).map(Port::number).collect();
        assert_eq!(numbers.len(), 40);
        assert!(numbers.iter().all(|port| *port >= LOWEST));
        TcpListener::bind((Ipv4Addr::LOCALHOST, ports[0].number())).unwrap();
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, more[0].number())).is_err());
    }
}
