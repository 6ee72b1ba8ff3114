//! PostgreSQL and PgBouncer.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::directory::Directory;
use crate::process::{Process, output};
use crate::program::free_address;
use crate::tls::Certificates;
use crate::wait::{wait_for, wait_until};

const INSTALL: &str = "apt-get install postgresql";
const INSTALL_PGBOUNCER: &str = "apt-get install pgbouncer";

const USER: &str = "slidegate";
const PASSWORD: &str = "pw-of-the-test";

/// Every attempt has a port of its own, so that several in a row are hardly ever taken.
const PORT_ATTEMPTS: usize = 10;

/// A `postgres` process with a directory of its own, both gone on drop.
///
/// It listens on a port of 127.0.0.1, where it asks for the password and speaks TLS, and on a Unix
/// socket, which the methods that send SQL use. As root it runs as the user `postgres`, since it
/// refuses to run as root.
#[derive(Debug)]
pub struct PostgresServer {
    address: SocketAddr,
    process: Mutex<Option<Process>>,
    certificates: Certificates,
    // Last, because fields are dropped in this order and the process still writes to it.
    directory: Directory,
}

impl PostgresServer {
    /// Starts a server and returns when it answers.
    #[must_use]
    pub fn start() -> Self {
        let directory = Directory::new();
        let certificates = Certificates::generate(&directory);
        let key = &certificates.server_key;
        fs::set_permissions(key, fs::Permissions::from_mode(0o600)).expect("the file is ours");
        let password = directory.write("password", PASSWORD);
        let account = Account::unprivileged();
        for path in [directory.path(), key, &password] {
            account.own(path);
        }
        let mut initdb = Command::new(program("initdb"));
        initdb.args(["--pgdata=data", "--no-sync", "--no-locale", "--encoding=UTF8"]);
        initdb.args(["--auth-local=trust", "--auth-host=scram-sha-256", "--pwfile=password"]);
        initdb.arg(format!("--username={USER}")).current_dir(directory.path());
        output(account.run(&mut initdb), INSTALL);
        let address = free_address();
        let mut server = Self { address, process: Mutex::new(None), certificates, directory };
        for _ in 0..PORT_ATTEMPTS {
            if server.launch() {
                return server;
            }
            server.address = free_address();
        }
        panic!("{PORT_ATTEMPTS} free ports were taken before the server could have them");
    }

    /// A new and empty database.
    #[must_use]
    pub fn database(&self) -> Database<'_> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.sql_in("postgres", &format!("create database {name}"));
        Database { server: self, name }
    }

    /// Where it listens on TCP, the same after each start.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The authority that has signed its certificate, and others.
    #[must_use]
    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// Stops it at once, with all its connections.
    pub fn stop(&self) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let mut process = process.take().expect("it runs");
        process.signal("INT");
        wait_until("postgres to stop", || !process.is_running());
    }

    /// Starts it again with the same data, on the same port.
    pub fn start_again(&self) {
        assert!(self.launch(), "it does not start:\n{}", self.log());
    }

    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.file("log")).unwrap_or_default()
    }

    /// Whether it now answers; if it does not, it has ended.
    fn launch(&self) -> bool {
        let log = File::options().create(true).append(true).open(self.directory.file("log"));
        let log = log.expect("the directory is writable");
        let mut command = Command::new(program("postgres"));
        command.args(["-D", "data", "-h", "127.0.0.1", "-p"]);
        command.arg(self.address.port().to_string()).arg("-k").arg(self.directory.path());
        for setting in [
            "fsync=off",
            "full_page_writes=off",
            "synchronous_commit=off",
            "autovacuum=off",
            "max_wal_size=4GB",
            "shared_preload_libraries=pg_stat_statements",
            "ssl=on",
            "ssl_cert_file=../server.crt",
            "ssl_key_file=../server.key",
        ] {
            command.args(["-c", setting]);
        }
        command.stderr(log.try_clone().expect("a file handle to spare")).stdout(log);
        Account::unprivileged().run(&mut command);
        let mut process = Process::spawn(&mut command, INSTALL, &self.directory);
        let answers = wait_for("postgres to answer", || {
            let answers = self.psql("postgres", "select 1").output().expect("psql runs");
            match answers.status.success() {
                true => Some(true),
                false => (!process.is_running()).then_some(false),
            }
        });
        if answers {
            *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
        }
        answers
    }

    fn sql_in(&self, database: &str, sql: &str) -> String {
        let output = output(&mut self.psql(database, sql), INSTALL);
        String::from_utf8(output.stdout).expect("it is UTF-8").trim_end().to_owned()
    }

    fn psql(&self, database: &str, sql: &str) -> Command {
        let mut psql = self.psql_session(database);
        psql.args(["-c", sql]);
        psql
    }

    fn psql_session(&self, database: &str) -> Command {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", USER, "-d", database]);
        psql.arg("-h").arg(self.directory.path()).args(["-p", &self.address.port().to_string()]);
        psql
    }
}

/// A database of a server.
#[derive(Debug)]
pub struct Database<'s> {
    server: &'s PostgresServer,
    name: String,
}

impl Database<'_> {
    /// Where clients connect over TCP without TLS, with the password.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_through(self.server.address)
    }

    /// The same by way of another address, such as that of PgBouncer.
    #[must_use]
    pub fn url_through(&self, address: SocketAddr) -> String {
        format!("postgres://{USER}:{PASSWORD}@{address}/{}?sslmode=disable", self.name)
    }

    /// Runs SQL, and returns the rows without headings.
    pub fn sql(&self, sql: &str) -> String {
        self.server.sql_in(&self.name, sql)
    }

    /// A session, for transactions that stay open.
    #[must_use]
    pub fn session(&self) -> PostgresSession {
        let mut command = self.server.psql_session(&self.name);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut psql = command.spawn().expect("psql runs");
        let input = psql.stdin.take().expect("it is piped");
        let output = BufReader::new(psql.stdout.take().expect("it is piped"));
        PostgresSession { psql, input, output }
    }
}

/// A `psql` process that stays connected until it is dropped.
#[derive(Debug)]
pub struct PostgresSession {
    psql: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl PostgresSession {
    /// Runs SQL, and returns when it is done.
    pub fn sql(&mut self, sql: &str) {
        writeln!(self.input, "{sql};\n\\echo is-done").expect("psql reads");
        let mut line = String::new();
        while line.trim_end() != "is-done" {
            line.clear();
            let read = self.output.read_line(&mut line).expect("psql writes UTF-8");
            assert!(read > 0, "psql ended at: {sql}");
        }
    }
}

impl Drop for PostgresSession {
    fn drop(&mut self) {
        let _ = self.psql.kill();
        let _ = self.psql.wait();
    }
}

/// A `pgbouncer` process in transaction mode, with a directory of its own, both gone on drop.
#[derive(Debug)]
pub struct PgBouncer {
    _process: Process,
    address: SocketAddr,
    // Last, because fields are dropped in this order and the process still writes to it.
    _directory: Directory,
}

impl PgBouncer {
    /// Starts one in front of a server, for all its databases.
    #[must_use]
    pub fn in_front_of(server: &PostgresServer) -> Self {
        let directory = Directory::new();
        let address = free_address();
        directory.write("users", &format!("\"{USER}\" \"{PASSWORD}\"\n"));
        let (host, port) = (server.address.ip(), server.address.port());
        let configuration = format!(
            "[databases]\n* = host={host} port={port}\n[pgbouncer]\nlisten_addr = {}\n\
             listen_port = {}\nunix_socket_dir =\nauth_type = scram-sha-256\nauth_file = users\n\
             pool_mode = transaction\ndefault_pool_size = 4\nserver_tls_sslmode = disable\n",
            address.ip(),
            address.port()
        );
        let configuration = directory.write("pgbouncer.ini", &configuration);
        let account = Account::unprivileged();
        account.own(directory.path());
        let log = File::create(directory.file("log")).expect("it is writable");
        let mut command = Command::new(pgbouncer());
        command.arg(configuration).stderr(log).stdout(Stdio::null());
        account.run(&mut command);
        let mut process = Process::spawn(&mut command, INSTALL_PGBOUNCER, &directory);
        wait_until("pgbouncer to listen", || {
            let log = || fs::read_to_string(directory.file("log")).unwrap_or_default();
            assert!(process.is_running(), "it ended:\n{}", log());
            std::net::TcpStream::connect(address).is_ok()
        });
        Self { _process: process, address, _directory: directory }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Whom a server runs as that refuses to run as root.
#[derive(Debug, Clone, Copy)]
enum Account {
    Ours,
    Other { user: u32, group: u32 },
}

impl Account {
    fn unprivileged() -> Self {
        let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
        if !is_root {
            return Self::Ours;
        }
        let users = fs::read_to_string("/etc/passwd").expect("Linux has users");
        let of = |name: &str| {
            let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
            let user = fields.into_iter().find(|fields| fields[0] == name)?;
            Some(Self::Other {
                user: user.get(2)?.parse().ok()?,
                group: user.get(3)?.parse().ok()?,
            })
        };
        of("postgres").or_else(|| of("nobody")).expect("every Linux has the user nobody")
    }

    fn own(self, path: &Path) {
        if let Self::Other { user, group } = self {
            chown(path, Some(user), Some(group)).expect("root may do this");
        }
    }

    fn run(self, command: &mut Command) -> &mut Command {
        match self {
            Self::Ours => command,
            Self::Other { user, group } => command.uid(user).gid(group),
        }
    }
}

/// A program of PostgreSQL. Debian has those of the server in a directory for each version, and not
/// on the path.
fn program(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let places = versions.map(|version| version.path().join("bin").join(name));
    places.filter(|place| place.exists()).max().unwrap_or_else(|| name.into())
}

/// Debian has it where the path of an ordinary user does not lead.
fn pgbouncer() -> &'static str {
    let place = "/usr/sbin/pgbouncer";
    if Path::new(place).exists() { place } else { "pgbouncer" }
}
