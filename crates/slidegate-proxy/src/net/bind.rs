//! Binds listening sockets.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};

use crate::ListenAddress;

/// Connections that the kernel queues for a worker until it accepts them. The kernel also applies
/// `somaxconn`, which usually has the same value.
const BACKLOG: i32 = 4096;

/// The listening sockets of all workers of an endpoint.
#[derive(Debug)]
pub struct Listeners {
    local: Vec<ListenAddress>,
    workers: Vec<Sockets>,
}

/// One worker's sockets.
#[derive(Debug, Default)]
pub struct Sockets {
    pub(super) tcp: Vec<TcpListener>,
    pub(super) unix: Vec<(UnixListener, Arc<SocketFile>)>,
}

impl Listeners {
    /// Binds all addresses, or none on an error. Errors name the address.
    ///
    /// The kernel distributes TCP connections over the workers. The workers share a Unix socket, and
    /// each connection goes to the first that accepts it.
    pub fn bind(addresses: &[ListenAddress], workers: usize) -> io::Result<Self> {
        let mut listeners = Self { local: Vec::new(), workers: Vec::new() };
        listeners.workers.resize_with(workers.max(1), Sockets::default);
        for address in addresses {
            listeners.add(address).map_err(|error| cannot_listen(address, &error))?;
        }
        Ok(listeners)
    }

    /// The bound addresses, with the port that the kernel chose in place of port 0.
    pub fn local(&self) -> &[ListenAddress] {
        &self.local
    }

    /// The sockets of each worker.
    pub fn into_workers(self) -> Vec<Sockets> {
        self.workers
    }

    fn add(&mut self, address: &ListenAddress) -> io::Result<()> {
        let local = match address {
            ListenAddress::Tcp(address) => ListenAddress::Tcp(self.add_tcp(*address)?),
            ListenAddress::Unix(path) => {
                self.add_unix(path)?;
                address.clone()
            }
        };
        self.local.push(local);
        Ok(())
    }

    fn add_tcp(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let sharing = if self.workers.len() > 1 { Sharing::Workers } else { Sharing::Exclusive };
        if sharing == Sharing::Workers && address.port() != 0 {
            // SO_REUSEPORT shares the port with every process of the same user: two gateways
            // started by mistake would silently split the traffic.
            drop(bind_tcp(address, Sharing::Exclusive)?);
        }
        let mut address = address;
        for worker in &mut self.workers {
            let socket = bind_tcp(address, sharing)?;
            socket.listen(BACKLOG)?;
            let listener = TcpListener::from(socket);
            address = listener.local_addr()?;
            worker.tcp.push(listener);
        }
        Ok(address)
    }

    fn add_unix(&mut self, path: &Path) -> io::Result<()> {
        remove_stale(path)?;
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        let file = Arc::new(SocketFile::new(path)?);
        for worker in &mut self.workers {
            worker.unix.push((listener.try_clone()?, Arc::clone(&file)));
        }
        Ok(())
    }
}

/// Whether several sockets can bind the same port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Exclusive,
    Workers,
}

fn bind_tcp(address: SocketAddr, sharing: Sharing) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(sharing == Sharing::Workers)?;
    // Accepted sockets inherit these options; saves two setsockopt calls each.
    socket.set_tcp_nodelay(true)?;
    socket.set_keepalive(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// The file of a Unix socket. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), device_and_inode: device_and_inode(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The file may belong to another process by now.
        if device_and_inode(&self.path).is_ok_and(|file| file == self.device_and_inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn device_and_inode(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Removes the socket that a dead process left behind.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(io::Error::other("the file exists and is not a socket"));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
    }
}

fn cannot_listen(address: &ListenAddress, error: &io::Error) -> io::Error {
    let kind = error.kind();
    let why = match kind {
        io::ErrorKind::AddrInUse => "address in use".to_owned(),
        _ => error.to_string(),
    };
    io::Error::new(kind, format!("cannot listen on {address}: {why}"))
}
