//! `defragd controller` as its users meet it: the chart installed by helm on a real API server, a
//! process with the chart's arguments and the token of its service account, real Prometheus and
//! etcd, and what `kubectl` shows of it all.

mod delivered;
mod play;
mod rbac;
mod rights;
mod secrets;
mod story;
mod support;
mod tables;
mod waiting;
