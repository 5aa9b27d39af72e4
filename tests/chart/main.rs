//! The chart, through the real `helm`: what it renders, what it refuses, what its pages say of it, and what
//! a real API server makes of it.

mod access;
mod alerts;
mod cluster;
mod commands;
mod docs;
mod helm;
mod render;
mod values;
