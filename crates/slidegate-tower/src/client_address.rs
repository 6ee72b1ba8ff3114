//! The address of the client behind proxies.
