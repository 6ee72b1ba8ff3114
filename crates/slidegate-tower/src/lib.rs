//! A Tower middleware that asks a [`Gate`](slidegate::Gate) before each request.

mod client_address;

pub use crate::client_address::{AddressSource, AddressSourceError, ClientAddress};
