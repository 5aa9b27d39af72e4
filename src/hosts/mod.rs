//! Where objects live.

pub mod config;
mod connection;
pub mod standalone;
pub mod views;
