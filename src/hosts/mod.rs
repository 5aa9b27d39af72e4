//! Where objects live.

pub mod config;
mod connection;
mod kubernetes;
pub mod standalone;
