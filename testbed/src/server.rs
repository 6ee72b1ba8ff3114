//! One `redis-server` or `valkey-server` process.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::connection::Connection;
use crate::directory::Directory;
use crate::options::{Ports, Role, ServerOptions, Transport};
use crate::process::Process;
use crate::reply::Reply;
use crate::tls::Certificates;
use crate::wait::{wait_for, wait_until};

/// Every attempt has a port of its own, so that several in a row are hardly ever taken.
const PORT_ATTEMPTS: usize = 10;

/// A `redis-server` or `valkey-server` process with a directory of its own, both gone on drop.
///
/// It listens on a TCP port of 127.0.0.1 and on a Unix socket. The methods that send commands use
/// the socket, so that they work whatever happens to the port.
#[derive(Debug)]
pub struct RedisServer {
    options: ServerOptions,
    ports: Ports,
    certificates: Option<Certificates>,
    connection: Mutex<Option<Connection>>,
    process: Mutex<Option<Process>>,
    // Last, because fields are dropped in this order and the process still writes to it.
    directory: Directory,
}

impl RedisServer {
    /// Starts a server without a password and without persistence.
    #[must_use]
    pub fn start() -> Self {
        Self::options().start()
    }

    /// What may be different from [`RedisServer::start`].
    #[must_use]
    pub fn options() -> ServerOptions {
        ServerOptions::default()
    }

    pub(crate) fn start_with(options: ServerOptions) -> Self {
        let directory = Directory::new();
        let own = || options.transport.is_tls().then(|| Certificates::generate(&directory));
        let certificates = options.certificates.clone().or_else(own);
        let mut server = Self {
            options,
            ports: free_ports(),
            certificates,
            connection: Mutex::new(None),
            process: Mutex::new(None),
            directory,
        };
        for _ in 0..PORT_ATTEMPTS {
            server.configure();
            if server.launch() {
                return server;
            }
            server.ports = free_ports();
        }
        panic!("{PORT_ATTEMPTS} free ports were taken before the server could have them");
    }

    /// Where clients connect over TCP, with the password; over the socket if there is no port.
    #[must_use]
    pub fn url(&self) -> String {
        match self.options.transport {
            Transport::UnixOnly => self.unix_url(),
            _ => self.url_through(self.ports.clients),
        }
    }

    /// Where clients connect over the Unix socket, with the password.
    #[must_use]
    pub fn unix_url(&self) -> String {
        let password = self.options.password.as_ref();
        let query = password.map(|password| format!("?pass={password}")).unwrap_or_default();
        format!("redis+unix://{}{query}", self.socket().display())
    }

    /// The TCP port on 127.0.0.1, the same after every restart.
    #[must_use]
    pub fn port(&self) -> u16 {
        assert!(self.options.transport != Transport::UnixOnly, "the server has no port");
        self.ports.clients
    }

    /// The path of the Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.file("redis.sock")
    }

    /// The files for TLS, if the server speaks it.
    #[must_use]
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// Sends a command and returns the reply, which may be an error; panics without a reply.
    pub fn command(&self, arguments: &[&str]) -> Reply {
        self.try_command(arguments)
            .unwrap_or_else(|error| panic!("no reply to {arguments:?}: {error}\n{}", self.log()))
    }

    /// The value of a field of `INFO everything`, such as `connected_clients`.
    #[must_use]
    pub fn info(&self, field: &str) -> String {
        let info = self.command(&["INFO", "everything"]).text();
        let value = value_of(&info, field);
        value.unwrap_or_else(|| panic!("INFO has no {field}:\n{info}")).to_owned()
    }

    /// Ends the process at once, as a crash does. A second time does nothing.
    pub fn kill(&self) {
        *lock(&self.connection) = None;
        *lock(&self.process) = None;
    }

    /// Starts the process again with the same port, directory and options, after a kill if it
    /// still runs. Returns when it serves commands.
    pub fn restart(&self) {
        self.kill();
        wait_for("the server's port to be free again", || self.launch().then_some(()));
    }

    /// Stops the process without closing its connections: it is silent from now on.
    pub fn pause(&self) {
        self.with_process(|process| {
            process.signal("STOP");
            wait_until("the process to stop", || process.is_stopped());
        });
    }

    /// Lets a paused process go on.
    pub fn resume(&self) {
        self.with_process(|process| process.signal("CONT"));
    }

    /// The id of the running process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.with_process(Process::pid)
    }

    /// The processor time that the process has used since it started, to a hundredth of a second.
    #[must_use]
    pub fn cpu_seconds(&self) -> f64 {
        self.with_process(Process::cpu_seconds)
    }

    /// Whether the process has not ended, be it paused or not.
    #[must_use]
    pub fn is_running(&self) -> bool {
        lock(&self.process).as_mut().is_some_and(Process::is_running)
    }

    /// Whether the process runs and is not paused, so that it answers commands.
    pub(crate) fn is_awake(&self) -> bool {
        let mut process = lock(&self.process);
        process.as_mut().is_some_and(|process| process.is_running() && !process.is_stopped())
    }

    pub(crate) fn cluster_bus_port(&self) -> u16 {
        self.ports.cluster_bus
    }

    /// The URL with the given port, which leads to the server's own.
    pub(crate) fn url_through(&self, port: u16) -> String {
        let scheme = if self.certificates.is_some() { "rediss" } else { "redis" };
        let password = self.options.password.as_ref();
        let user_info = password.map(|password| format!(":{password}@")).unwrap_or_default();
        format!("{scheme}://{user_info}127.0.0.1:{port}/")
    }

    fn try_command(&self, arguments: &[&str]) -> io::Result<Reply> {
        let mut connection = lock(&self.connection);
        if let Some(mut open) = connection.take() {
            match open.command(arguments) {
                Ok(reply) => {
                    *connection = Some(open);
                    return Ok(reply);
                }
                // Sentinels disconnect all clients of a server whose role they change.
                Err(error) if is_disconnection(&error) => {}
                Err(error) => return Err(error),
            }
        }
        connection.insert(self.connect()?).command(arguments)
    }

    fn connect(&self) -> io::Result<Connection> {
        let mut connection = Connection::open(&self.socket())?;
        if let Some(password) = &self.options.password {
            connection.command(&["AUTH", password])?;
        }
        Ok(connection)
    }

    fn with_process<T>(&self, act: impl FnOnce(&Process) -> T) -> T {
        act(lock(&self.process).as_ref().expect("the server has not been killed"))
    }

    /// Starts the process and waits until it serves commands; false if a port was taken.
    fn launch(&self) -> bool {
        *lock(&self.process) = Some(self.spawn());
        wait_for("the server to serve commands", || {
            let is_running = self.is_running();
            let is_serving = matches!(self.try_command(&["PING"]), Ok(Reply::Text(_)));
            (is_serving || !is_running).then_some(is_serving)
        }) || self.excuse_end()
    }

    /// False if the process ended because of a taken port, else a panic with its log.
    fn excuse_end(&self) -> bool {
        let log = self.log();
        assert!(log.contains("Address already in use"), "the server ended:\n{log}");
        false
    }

    /// Only before the first start: sentinels keep what they learn in this file.
    fn configure(&self) {
        let certificates = self.certificates.as_ref();
        let lines = self.options.configuration(self.ports, &self.socket(), certificates);
        self.directory.write(CONFIGURATION, &lines);
    }

    fn spawn(&self) -> Process {
        let log = File::create(self.log_path()).expect("the directory is writable");
        let mut command = Command::new(self.options.flavour.program());
        command.arg(self.directory.file(CONFIGURATION));
        if self.options.role == Role::Sentinel {
            command.arg("--sentinel");
        }
        command.stderr(log.try_clone().expect("a file handle to spare")).stdout(log);
        if let Some(time) = &self.options.time {
            time.govern(&mut command);
        }
        Process::spawn(&mut command, "apt-get install redis-server", &self.directory)
    }

    fn log_path(&self) -> PathBuf {
        self.directory.file("redis.log")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }
}

const CONFIGURATION: &str = "redis.conf";

/// Two ports that are free at this moment.
fn free_ports() -> Ports {
    // Both are held until both are known, so that they differ.
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let [clients, cluster_bus] =
        listeners.each_ref().map(|listener| listener.local_addr().expect("it is bound").port());
    Ports { clients, cluster_bus }
}

fn is_disconnection(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// The value in the first line of the form `field:value`.
pub(crate) fn value_of<'a>(lines: &'a str, field: &str) -> Option<&'a str> {
    lines.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
