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
use serde::de::DeserializeOwned;
use serde_json::Value;
use slidegate_proxy::ListenAddress;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_util::either::Either;

use crate::config::Secret;
use crate::terminal::{show, show_styled};
use crate::visible::{self, visible};

/// Where the server is.
#[derive(Debug, clap::Args)]
pub(crate) struct AdminUrl {
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
}

/// Where the server is, and how to call it.
#[derive(Debug, clap::Args)]
pub(crate) struct AdminEndpoint {
    #[command(flatten)]
    url: AdminUrl,

    /// A file that has the operator's token, if the server wants one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Print the server's answer as it is, in JSON
    #[arg(long)]
    pub(super) json: bool,
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(30);
/// More than ten thousand overrides take.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;
const OTHER_VERSION: &str = "the server answers as another version does; see --json";
const TOKEN: &str = "SLIDEGATE_ADMIN_TOKEN";

impl AdminUrl {
    /// Fails if it is no URL.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        AdminAddress::parse(&self.admin).map(drop)
    }

    /// Sends a request, and returns the status and the body of the response.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        token: Option<&Secret>,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let admin = &self.admin;
        let address = AdminAddress::parse(admin)?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, address.host())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, application/problem+json");
        if let Some(token) = token {
            let bearer = HeaderValue::try_from(format!("Bearer {}", token.reveal()));
            let bearer = bearer.ok().context("the token cannot be sent: expected visible text")?;
            request = request.header(header::AUTHORIZATION, bearer);
        }
        let request = request.body(Full::new(Bytes::from(body)))?;
        let connected = timeout(CONNECT_TIMEOUT, address.connect()).await;
        let stream = match connected.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into())) {
            Ok(stream) => stream,
            Err(error) => bail!(
                "cannot reach {admin}: {error}; is `slidegate serve` running there? --admin URL or \
                 SLIDEGATE_ADMIN says where it is"
            ),
        };
        match timeout(TIMEOUT, exchange(stream, request)).await {
            Ok(answer) => answer
                .with_context(|| format!("{admin} closed the connection, or does not speak HTTP")),
            Err(_) => bail!("{admin} did not answer within {} s", TIMEOUT.as_secs()),
        }
    }
}

impl fmt::Display for AdminUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.admin)
    }
}

impl AdminEndpoint {
    /// Fails if the URL or the token cannot be used.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.url.check()?;
        self.token().map(drop)
    }

    /// Sends a request and prints the answer.
    pub(super) fn print<T: DeserializeOwned + Display>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> anyhow::Result<()> {
        self.print_as(method, path, body, |answer: T| Ok(answer.to_string()))
    }

    /// The same, with the text that is made of the answer.
    pub(super) fn print_as<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        text: impl FnOnce(T) -> anyhow::Result<String>,
    ) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answer = runtime.block_on(self.call(method, path, body))?;
        if self.json {
            return show(&(visible(&String::from_utf8(answer.into())?) + "\n"));
        }
        show_styled(&text(visible::from_json(&answer).context(OTHER_VERSION)?)?)
    }

    /// A page, which is JSON.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let answer = self.call(Method::GET, path, Vec::new()).await?;
        visible::from_json(&answer).context(OTHER_VERSION)
    }

    /// The server's answer, which is JSON, or why it does not do what it was asked.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> anyhow::Result<Bytes> {
        let admin = &self.url.admin;
        let token = self.token()?;
        let (status, body) = self.url.send(method, path, body, token.as_ref()).await?;
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
        let answer: Option<Value> = visible::from_json(&body).ok();
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
    stream: AdminStream,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body =
        Limited::new(body, MAX_BODY_BYTES).collect().await.map_err(anyhow::Error::from_boxed)?;
    Ok((head.status, body.to_bytes()))
}

type AdminStream = Either<TcpStream, UnixStream>;

/// Where to connect.
#[derive(Debug)]
enum AdminAddress {
    /// Host and port.
    Tcp(String),
    Unix(PathBuf),
}

impl AdminAddress {
    fn parse(text: &str) -> anyhow::Result<Self> {
        match text.parse::<ListenAddress>() {
            Ok(ListenAddress::Unix(path)) => return Ok(Self::Unix(path)),
            Ok(listener @ ListenAddress::Tcp(bound)) => {
                return Ok(Self::Tcp(listener.reached_at().unwrap_or(bound).to_string()));
            }
            Err(_) => {}
        }
        let is_plain = |uri: &Uri| {
            uri.scheme_str() == Some("http") && uri.path() == "/" && uri.query().is_none()
        };
        let uri = text.parse::<Uri>().ok().filter(is_plain);
        let authority = uri.as_ref().and_then(Uri::authority);
        match authority.filter(|authority| !authority.as_str().contains('@')) {
            Some(authority) if !authority.host().is_empty() => {
                let port = authority.port_u16().unwrap_or(80);
                Ok(Self::Tcp(format!("{}:{port}", authority.host())))
            }
            _ => bail!("--admin {text:?}: expected http://HOST:PORT, ADDRESS:PORT or unix:/path"),
        }
    }

    /// The `Host` of requests.
    fn host(&self) -> &str {
        match self {
            Self::Tcp(host_and_port) => host_and_port,
            Self::Unix(_) => "localhost",
        }
    }

    async fn connect(&self) -> io::Result<AdminStream> {
        Ok(match self {
            Self::Tcp(host_and_port) => Either::Left(TcpStream::connect(host_and_port).await?),
            Self::Unix(path) => Either::Right(UnixStream::connect(path).await?),
        })
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
        assert_eq!(path_segment("ip:203.0.113.7"), "ip:203.0.113.7");
        assert_eq!(path_segment("ip:2001:db8::/64"), "ip:2001:db8::%2F64");
        assert_eq!(path_segment("user:a?b#c%d&e=f"), "user:a%3Fb%23c%25d%26e%3Df");
    }
}
