//! Where objects live.

pub mod config;
mod connection;
mod fleet;
pub mod kubernetes;
mod report;
pub mod standalone;
pub mod views;
