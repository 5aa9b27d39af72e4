//! The container image that `make image` has left: what is in it, what it says of itself, that it is
//! made again with the same digest, and that it works without root, shell and a place to write.

mod container;
mod contents;
mod layout;
mod running;
