//! Objects in a real API server: which are taken, what becomes of them when people and other
//! controllers change and delete them, and whose clusters they lead to.

mod admission;
mod deleting;
mod examples;
mod idle;
mod load;
mod malformed;
mod resolvers;
mod support;
mod table;
mod upgrade;
