//! Ports that nobody else takes, also not while the server that owns one is down.
//!
//! A port asked from the kernel (port 0) comes from the range from which it also gives outgoing
//! connections their ports, so it can be gone when a killed server wants it back. These ports come
//! from below that range, are tried by binding to them, and are held by a locked file for as long
//! as the value lives, so that harness processes running side by side keep apart.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use crate::Error;

/// Above the ports that well-known daemons use.
const LOWEST: u16 = 12_000;
/// The start of Linux's default range for outgoing connections (`ip_local_port_range`).
const EPHEMERAL: u16 = 32_768;

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
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let folder = std::env::temp_dir().join("defragd-ports");
        fs::create_dir_all(&folder)
            .map_err(|e| Error::io(format!("create {}", folder.display()), e))?;
        let highest = first_ephemeral().min(EPHEMERAL);
        let span = highest.saturating_sub(LOWEST).max(1);
        // Processes start at different places, so that they seldom try the same port.
        let start = (std::process::id() % u32::from(span)) as u16;
        for _ in 0..span {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            // 61 and the span have no common factor worth mention: the steps visit every place.
            let number =
                LOWEST + (u32::from(start) * 61 + u32::from(step)).rem_euclid(span.into()) as u16;
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

fn first_ephemeral() -> u16 {
    fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .filter(|first| *first > LOWEST + 1_000)
        .unwrap_or(EPHEMERAL)
}
