//! Objects live in Kubernetes.

// Until the host calls it, only its tests do.
#[cfg(test)]
mod resolve;
