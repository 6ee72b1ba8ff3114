//! Connections over real sockets.

mod addresses;
mod bounds;
mod client;
mod draining;
mod endpoint;
mod http;
mod proxy_header;
mod tls;
