//! One request to a running server's admin endpoint.

use std::fmt::{self, Display};
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::config::{ListenAddress, Secret};
use crate::terminal;

/// Where the server is, and how to call it.
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
    json: bool,
}

/// An answer: read from JSON, printed for people.
pub(super) trait View: DeserializeOwned + Display {}

impl<T: DeserializeOwned + Display> View for T {}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(30);
/// More than ten thousand overrides take.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;
const TOKEN: &str = "SLIDEGATE_ADMIN_TOKEN";

impl AdminEndpoint {
    /// Prints what the server answers to a GET request.
    pub(super) fn get<T: View>(&self, path: &str) -> anyhow::Result<()> {
        self.print::<T>(Method::GET, path, Bytes::new())
    }

    /// Prints what the server answers to a request with a JSON body.
    pub(super) fn send<T: View>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<()> {
        self.print::<T>(method, path, serde_json::to_vec(body)?.into())
    }

    fn print<T: View>(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answer = runtime.block_on(self.call(method, path, body))?;
        let text = if self.json {
            String::from_utf8(answer.into())? + "\n"
        } else {
            serde_json::from_slice::<T>(&answer)
                .context("the server answers as another version does; see --json")?
                .to_string()
        };
        Ok(terminal::show(&text)?)
    }

    /// The server's answer, which is JSON, or why it does not do what it was asked.
    async fn call(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Bytes> {
        let admin = &self.admin;
        let address = AdminAddress::parse(admin)?;
        let token = self.token()?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, address.to_string())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, application/problem+json");
        if let Some(token) = &token {
            let bearer = HeaderValue::try_from(format!("Bearer {}", token.reveal()));
            let bearer = bearer.ok().context("the token cannot be sent: expected visible text")?;
            request = request.header(header::AUTHORIZATION, bearer);
        }
        let request = request.body(Full::new(body))?;
        let connected = timeout(CONNECT_TIMEOUT, address.connect()).await;
        let stream = match connected.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into())) {
            Ok(stream) => stream,
            Err(error) => bail!(
                "cannot reach {admin}: {error}; is `slidegate serve` running there? --admin URL or \
                 SLIDEGATE_ADMIN says where it is"
            ),
        };
        let (status, body) = match timeout(TIMEOUT, exchange(stream, request)).await {
            Ok(answer) => answer.with_context(|| {
                format!("{admin} closed the connection, or does not speak HTTP")
            })?,
            Err(_) => bail!("{admin} did not answer within {} s", TIMEOUT.as_secs()),
        };
        if status == StatusCode::UNAUTHORIZED {
            match (token, &self.token_file) {
                (None, _) => bail!(
                    "{admin} asks for the operator's token: set {TOKEN}, or name a --token-file"
                ),
                (Some(_), Some(file)) => {
                    bail!("{admin} does not take the token in {}", file.display())
                }
                (Some(_), None) => bail!("{admin} does not take the token in {TOKEN}"),
            }
        }
        let answer: Option<Value> = serde_json::from_slice(&body).ok();
        match answer.as_ref().map(|answer| answer["detail"].as_str()) {
            Some(_) if status.is_success() => Ok(body),
            Some(Some(detail)) => bail!("{detail}"),
            _ => bail!(
                "{admin} answered {status}, but not as slidegate's admin endpoint does; that is \
                 where the metrics are"
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

async fn exchange(
    stream: Box<dyn AdminStream>,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body =
        Limited::new(body, MAX_BODY_BYTES).collect().await.map_err(anyhow::Error::from_boxed)?;
    Ok((head.status, body.to_bytes()))
}

trait AdminStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> AdminStream for T {}

/// Where to connect. Its text is the `Host` of requests.
#[derive(Debug)]
enum AdminAddress {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
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
        let is_plain = |uri: &Uri| {
            uri.scheme_str() == Some("http") && uri.path() == "/" && uri.query().is_none()
        };
        let uri = text.parse::<Uri>().ok().filter(is_plain);
        let authority = uri.as_ref().and_then(Uri::authority);
        match authority.filter(|authority| !authority.as_str().contains('@')) {
            Some(authority) if !authority.host().is_empty() => {
                let host = authority.host().trim_start_matches('[').trim_end_matches(']');
                Ok(Self::Tcp { host: host.to_owned(), port: authority.port_u16().unwrap_or(80) })
            }
            _ => bail!("--admin {text:?}: expected http://HOST:PORT, ADDRESS:PORT or unix:/path"),
        }
    }

    async fn connect(&self) -> io::Result<Box<dyn AdminStream>> {
        Ok(match self {
            Self::Tcp { host, port } => Box::new(TcpStream::connect((&**host, *port)).await?),
            Self::Unix(path) => Box::new(UnixStream::connect(path).await?),
        })
    }
}

impl Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(_) => f.write_str("localhost"),
        }
    }
}

/// A text as one segment of a path.
pub(super) fn path_segment(text: &str) -> String {
    const RESERVED: AsciiSet =
        NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');
    utf8_percent_encode(text, &RESERVED).to_string()
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
            assert_eq!(AdminAddress::parse(text).unwrap().to_string(), host);
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
        assert_eq!(path_segment("ip:203.0.113.7"), "ip:203.0.113.7");
        assert_eq!(path_segment("ip:2001:db8::/64"), "ip:2001:db8::%2F64");
        assert_eq!(path_segment("user:a?b#c%d&e=f"), "user:a%3Fb%23c%25d%26e%3Df");
    }
}
