//! Where objects live.

pub mod config;
mod connection;
pub mod kubernetes;
mod report;
pub mod standalone;
pub mod views;
