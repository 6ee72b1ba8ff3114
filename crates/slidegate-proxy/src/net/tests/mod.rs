//! Connections over real sockets, and any bytes as what they begin with.

mod addresses;
mod bounds;
mod client;
mod draining;
mod endpoint;
mod fuzz;
mod http;
mod proxy_header;
mod tls;
