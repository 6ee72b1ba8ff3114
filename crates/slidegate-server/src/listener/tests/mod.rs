//! Connections over real sockets.

mod addresses;
mod bounds;
mod client;
mod door;
mod draining;
mod http;
mod proxy_header;
mod tls;
