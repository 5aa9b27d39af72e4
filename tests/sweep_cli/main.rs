//! `defragd sweep` against real etcd servers.

mod access;
mod healthy;
mod interrupted;
mod nospace;
mod refused;
mod running;
