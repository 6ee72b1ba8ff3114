//! One request to a running server's admin endpoint.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpStream, UnixStream};

use crate::config::{ListenAddress, Secret};

/// Where the server is, and what to show it.
#[derive(Debug, clap::Args)]
pub(crate) struct AdminEndpoint {
    /// Admin endpoint of the server: http://HOST:PORT, or ADDRESS:PORT or unix:/path as
    /// admin.listen has it
    #[arg(
        long,
        value_name = "URL",
        env = "SLIDEGATE_ADMIN",
        default_value = "http://127.0.0.1:9090",
        hide_env = true
    )]
    admin: String,

    /// A file that has the operator's token, if the server wants one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Print the server's answer as it is, in JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// How long a connection, and then an answer, is waited for.
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(30);
/// More than ten thousand overrides take.
const MOST_BYTES: usize = 16 * 1024 * 1024;
const TOKEN: &str = "SLIDEGATE_ADMIN_TOKEN";

impl AdminEndpoint {
    /// The server's answer, which is JSON, or why it does not do what it was asked.
    pub(super) fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.exchange(method, path, body))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<String> {
        let endpoint = AdminAddress::parse(&self.admin)?;
        let token = self.token()?;
        let body = body.map(ToString::to_string).unwrap_or_default();
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, endpoint.host())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, application/problem+json");
        if let Some(token) = &token {
            let shown = format!("Bearer {}", token.reveal());
            let mut shown = http::HeaderValue::try_from(shown)
                .map_err(|_| anyhow::anyhow!("the token cannot be sent: expected visible text"))?;
            shown.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, shown);
        }
        let request = request.body(Full::new(Bytes::from(body)))?;
        let (status, body) = match tokio::time::timeout(ANSWER, self.send(&endpoint, request)).await
        {
            Ok(answer) => answer?,
            Err(_) => bail!("{} did not answer within {} s", self.admin, ANSWER.as_secs()),
        };
        self.understand(status, &body, token.is_some())
    }

    async fn send(
        &self,
        endpoint: &AdminAddress,
        request: Request<Full<Bytes>>,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let connected = tokio::time::timeout(CONNECT, endpoint.connect()).await;
        let connected = connected.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()));
        let answer = match connected {
            Ok(AdminStream::Tcp(stream)) => exchange(TokioIo::new(stream), request).await,
            Ok(AdminStream::Unix(stream)) => exchange(TokioIo::new(stream), request).await,
            Err(error) => bail!(
                "cannot reach {}: {error}; is `slidegate serve` running there? --admin URL or \
                 SLIDEGATE_ADMIN says where it is",
                self.admin
            ),
        };
        answer.with_context(|| {
            format!("{} closed the connection, or does not speak HTTP", self.admin)
        })
    }

    fn understand(
        &self,
        status: StatusCode,
        body: &[u8],
        had_token: bool,
    ) -> anyhow::Result<String> {
        if status == StatusCode::UNAUTHORIZED {
            match (had_token, &self.token_file) {
                (false, _) => bail!(
                    "{} asks for the operator's token: set {TOKEN}, or name a --token-file",
                    self.admin
                ),
                (true, Some(file)) => {
                    bail!("{} does not take the token in {}", self.admin, file.display())
                }
                (true, None) => bail!("{} does not take the token in {TOKEN}", self.admin),
            }
        }
        let said: Option<Value> = serde_json::from_slice(body).ok();
        match said {
            Some(_) if status.is_success() => Ok(String::from_utf8_lossy(body).into_owned()),
            Some(said) if said["detail"].is_string() => {
                bail!("{}", said["detail"].as_str().unwrap_or_default())
            }
            _ => bail!(
                "{} answered {status}, but not as slidegate's admin endpoint does; that is where \
                 the metrics are",
                self.admin
            ),
        }
    }

    /// The token: a file's outweighs the environment's.
    fn token(&self) -> anyhow::Result<Option<Secret>> {
        let token = match &self.token_file {
            Some(file) => {
                let text = std::fs::read_to_string(file);
                Some(text.with_context(|| format!("--token-file {}", file.display()))?)
            }
            None => std::env::var(TOKEN).ok(),
        };
        Ok(token.map(|text| Secret::new(&text)).filter(|token| !token.is_empty()))
    }
}

/// Where to connect.
#[derive(Debug)]
enum AdminAddress {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

enum AdminStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AdminAddress {
    fn parse(text: &str) -> anyhow::Result<Self> {
        if let Ok(listener) = text.parse::<ListenAddress>() {
            return Ok(match (listener.reached_at(), listener) {
                (_, ListenAddress::Unix(path)) => Self::Unix(path),
                (reached, ListenAddress::Tcp(bound)) => {
                    let address = reached.unwrap_or(bound);
                    Self::Tcp { host: address.ip().to_string(), port: address.port() }
                }
            });
        }
        let uri = text.parse::<Uri>().ok().filter(|uri| {
            uri.scheme_str() == Some("http")
                && matches!(uri.path(), "" | "/")
                && uri.query().is_none()
        });
        let authority = uri
            .as_ref()
            .and_then(Uri::authority)
            .filter(|authority| !authority.as_str().contains('@') && !authority.host().is_empty());
        let Some(authority) = authority else {
            bail!("--admin {text:?}: expected http://HOST:PORT, ADDRESS:PORT or unix:/path");
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self::Tcp { host, port: authority.port_u16().unwrap_or(80) })
    }

    fn host(&self) -> String {
        match self {
            Self::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Self::Tcp { host, port } => format!("{host}:{port}"),
            Self::Unix(_) => "localhost".to_owned(),
        }
    }

    async fn connect(&self) -> std::io::Result<AdminStream> {
        match self {
            Self::Tcp { host, port } => {
                TcpStream::connect((host.as_str(), *port)).await.map(AdminStream::Tcp)
            }
            Self::Unix(path) => UnixStream::connect(path).await.map(AdminStream::Unix),
        }
    }
}

async fn exchange(
    io: impl Read + Write + Send + Unpin + 'static,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let (mut sender, connection) = http1::handshake(io).await?;
    tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MOST_BYTES).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!(error))?;
    Ok((status, body.to_bytes()))
}

/// A text as one part of a path.
pub(super) fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_addresses_or_sockets() {
        for (text, host) in [
            ("http://127.0.0.1:9090", "127.0.0.1:9090"),
            ("http://127.0.0.1:9090/", "127.0.0.1:9090"),
            ("http://gate.internal", "gate.internal:80"),
            ("http://[::1]:9090", "[::1]:9090"),
            ("unix:/run/slidegate.sock", "localhost"),
            ("127.0.0.1:9090", "127.0.0.1:9090"),
            ("localhost:9090", "127.0.0.1:9090"),
            ("0.0.0.0:9090", "127.0.0.1:9090"),
            ("[::]:9090", "[::1]:9090"),
        ] {
            assert_eq!(AdminAddress::parse(text).unwrap().host(), host);
        }
        for text in [
            "",
            "127.0.0.1",
            "localhost",
            "https://a",
            "http://",
            "http://a/metrics",
            "http://a?b",
            "http://me:hunter2@a",
            "unix:x.sock",
        ] {
            let error = AdminAddress::parse(text).unwrap_err().to_string();
            assert!(
                error.ends_with("expected http://HOST:PORT, ADDRESS:PORT or unix:/path"),
                "{error}"
            );
        }
    }

    #[test]
    fn parts_of_paths_stay_one_part() {
        assert_eq!(encoded("ip:203.0.113.7"), "ip:203.0.113.7");
        assert_eq!(encoded("ip:2001:db8::/64"), "ip:2001:db8::%2F64");
        assert_eq!(encoded("user:a?b#c%d&e=f"), "user:a%3Fb%23c%25d%26e%3Df");
    }
}
