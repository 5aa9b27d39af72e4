//! A metric of Kubernetes' metrics APIs as a policy's signal: a real API server with a real
//! prometheus-adapter behind it, which asks a real Prometheus about a real etcd.
//!
//! Only what this adapter never does is shown by a fake API server in `fake.rs`.

mod fake;
mod reading;
mod story;
mod support;
