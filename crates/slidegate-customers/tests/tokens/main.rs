//! Tokens of a real issuer: signatures, claims, key rotation, faults of the provider, and bounds.

mod bounds;
mod claims;
mod faults;
mod forgery;
mod key_set;
mod provider;
mod signing;
mod world;
