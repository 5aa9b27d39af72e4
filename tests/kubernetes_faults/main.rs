//! `defragd controller` while things break: replicas die, freeze and are cut off, the API server
//! goes away, forgets, refuses and contradicts.
//!
//! Every replica has an account of its own and its own way to the API server, so that the audit log
//! tells who wrote what, and a proxy can take away the API from one of them. What proves that no
//! member was defragmented twice is the member's own count of those that it has finished.

mod away;
mod clock;
mod contended;
mod expired;
mod failover;
mod fence;
mod own_etcd;
mod support;
mod throttled;
mod unread;
