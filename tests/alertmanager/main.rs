//! Alerts as signals: real Prometheus, Alertmanager and etcd, and the real `defragd`.
//!
//! Each story names the cases that it shows. Nothing here sleeps; "does not happen" is looked at after
//! defragd has had several more occasions.

mod blocker;
mod hostile;
mod kubernetes;
mod pull;
mod push;
mod story;
mod support;
