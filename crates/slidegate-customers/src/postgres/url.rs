//! The URL of a database.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::config::KeySourceError;

/// The URL of a PostgreSQL database as libpq has it: with one host or several, or the directory of a
/// Unix socket. It is shown without the password and without parameters.
///
/// ```
/// use slidegate_customers::PostgresUrl;
///
/// let url: PostgresUrl = "postgres://slidegate:s3cret@db1:5432,db2:5433/app".parse()?;
/// assert_eq!(url.to_string(), "postgres://slidegate@db1:5432,db2:5433/app");
/// assert!(url.allows_plaintext());
/// # Ok::<(), slidegate_customers::KeySourceError>(())
/// ```
#[derive(Clone)]
pub struct PostgresUrl(Config);

impl PostgresUrl {
    /// Whether it has a password.
    pub fn has_password(&self) -> bool {
        self.0.get_password().is_some()
    }

    /// Whether a connection to another machine may do without TLS.
    pub fn allows_plaintext(&self) -> bool {
        let is_remote = |host: &Host| match host {
            Host::Tcp(name) => name != "localhost" && !name.parse().is_ok_and(is_loopback),
            _ => false,
        };
        let addresses = self.0.get_hostaddrs();
        let leaves_this_machine = match addresses {
            [] => self.0.get_hosts().iter().any(is_remote),
            _ => !addresses.iter().copied().all(is_loopback),
        };
        leaves_this_machine && self.0.get_ssl_mode() != SslMode::Require
    }

    /// The hosts without ports, for operators.
    pub fn hosts(&self) -> String {
        let hosts = self.0.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name,
            _ => "a Unix socket",
        });
        hosts.collect::<Vec<_>>().join(", ")
    }

    pub(super) fn config(self) -> Config {
        self.0
    }
}

impl FromStr for PostgresUrl {
    type Err = KeySourceError;

    fn from_str(text: &str) -> Result<Self, KeySourceError> {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        // What follows the scheme may be a password, wherever it stands.
        let error = || match scheme {
            Some(scheme) => KeySourceError::Url(format!("{scheme}://…")),
            None => KeySourceError::Url("a text that is not a URL".to_owned()),
        };
        if !matches!(scheme, Some("postgres" | "postgresql")) {
            return Err(error());
        }
        let config: Config = verified_modes(text).parse().map_err(|_| error())?;
        // With an unencoded `@` in a password, its rest is where the hosts and the database are.
        let has_at = |text: &str| text.contains('@');
        let of_password = |host: &Host| matches!(host, Host::Tcp(name) if has_at(name));
        let hosts = config.get_hosts();
        if hosts.is_empty()
            || hosts.iter().any(of_password)
            || config.get_dbname().is_some_and(has_at)
        {
            return Err(error());
        }
        Ok(Self(config))
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://")?;
        if let Some(user) = self.0.get_user() {
            write!(f, "{user}@")?;
        }
        for (i, host) in self.0.get_hosts().iter().enumerate() {
            let separator = if i == 0 { "" } else { "," };
            match host {
                Host::Tcp(name) => write!(f, "{separator}{name}")?,
                #[cfg(unix)]
                Host::Unix(path) => write!(f, "{separator}{}", path.display())?,
            }
            if let Some(port) = self.0.get_ports().get(i) {
                write!(f, ":{port}")?;
            }
        }
        match self.0.get_dbname() {
            Some(database) => write!(f, "/{database}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresUrl").field(&self.to_string()).finish()
    }
}

/// The modes of libpq that the client library does not know, by the one that is the same here.
fn verified_modes(url: &str) -> String {
    url.replace("sslmode=verify-full", "sslmode=require")
        .replace("sslmode=verify-ca", "sslmode=require")
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plaintext_to_another_machine_is_noticed() {
        for (url, expected) in [
            ("postgres://u@10.0.2.7/app", true),
            ("postgres://u@db.internal/app?sslmode=prefer", true),
            ("postgres://u@db.internal/app?sslmode=disable", true),
            ("postgres://u@localhost,db2/app", true),
            ("postgres://u@localhost/app?hostaddr=10.0.2.7", true),
            ("postgres://u@db.internal/app?sslmode=require", false),
            ("postgres://u@db.internal/app?sslmode=verify-full", false),
            ("postgres://u@127.0.0.1:6432/app", false),
            ("postgres://u@[::1]/app?sslmode=disable", false),
            ("postgres://u@localhost/app", false),
            ("postgres://u@%2Fvar%2Frun%2Fpostgresql/app", false),
            ("postgres:///app?host=/var/run/postgresql", false),
        ] {
            assert_eq!(url.parse::<PostgresUrl>().unwrap().allows_plaintext(), expected, "{url}");
        }
    }

    #[test]
    fn hosts_are_shown_without_ports() {
        for (url, expected) in [
            ("postgres://u:p@10.0.2.7/app", "10.0.2.7"),
            ("postgres://u@db1:5432,db2:5433/app", "db1, db2"),
            ("postgres://u@%2Fvar%2Frun%2Fpostgresql/app", "a Unix socket"),
        ] {
            assert_eq!(url.parse::<PostgresUrl>().unwrap().hosts(), expected);
        }
    }
}
