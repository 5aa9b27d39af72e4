//! Objects live in Kubernetes.

#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the host that calls it is built beside it")
)]
mod resolve;
