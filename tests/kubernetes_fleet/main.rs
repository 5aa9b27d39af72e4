//! One policy for many clusters on a real API server: a thousand of them, and those that other
//! operators describe. It is a target of its own because a thousand clusters leave no room for
//! other tests beside them.

mod operators;
mod size;
mod support;
