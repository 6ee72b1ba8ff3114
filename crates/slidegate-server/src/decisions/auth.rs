//! Forward-auth: a proxy sends the head of each request here and acts on the status.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri, header, request,
};
use serde::{Deserialize, Serialize};
use slidegate::policy::Network;
use slidegate_tower::{AddressSource, ClientAddress, RequestHead, ResolvedClient};

use crate::endpoint::problem::{InvalidMember, Problem};

/// How a proxy describes a request, and how it uses the answer.
///
/// Each has one way only. A client's own headers come along, so a way that the proxy does not use
/// would be the client's to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AuthProtocol {
    /// Caddy, Traefik, HAProxy: `X-Forwarded-Method` and `X-Forwarded-Uri`; any status goes on to
    /// the client.
    Forwarding,
    /// nginx: `X-Original-Method` and `X-Original-URI`; only 401 and 403 refuse.
    Nginx,
    /// Envoy: its own method, and its path after ours.
    Envoy,
}

pub(super) const ENVOY_PREFIX: &str = "/v1/auth/envoy";

/// Whether a path is for Envoy's questions, which have its own path after ours.
pub(super) fn is_of_envoy(path: &str) -> bool {
    path.strip_prefix(ENVOY_PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Where nginx fetches the refusal that it was told to give: `auth_request` drops the response that it
/// gets, and no header can carry a body of several lines.
pub(super) const REFUSAL_PATH: &str = "/v1/auth/nginx/refusal";

/// The whole refusal, which nginx sends back to [`REFUSAL_PATH`].
const REFUSAL: HeaderName = HeaderName::from_static("x-slidegate-refusal");
/// The same for configurations that make the client's response themselves.
const STATUS: HeaderName = HeaderName::from_static("x-slidegate-status");
const BODY: HeaderName = HeaderName::from_static("x-slidegate-body");
const CONTENT_TYPE: HeaderName = HeaderName::from_static("x-slidegate-content-type");

/// The request that a proxy asks about.
#[derive(Debug)]
pub(crate) struct OriginalRequest<'r> {
    pub(super) method: Cow<'r, Method>,
    pub(super) path: Cow<'r, str>,
    pub(crate) client: ResolvedClient,
    headers: &'r HeaderMap,
}

impl<'r> OriginalRequest<'r> {
    /// The original request as the proxy describes it, or what is missing.
    pub(super) fn read(
        protocol: AuthProtocol,
        head: &'r request::Parts,
        peer: Option<IpAddr>,
        clients: &ClientAddress,
    ) -> Result<Self, Problem> {
        let headers = &head.headers;
        let (method, path) = match protocol {
            AuthProtocol::Forwarding => {
                described(headers, "x-forwarded-method", "x-forwarded-uri")?
            }
            AuthProtocol::Nginx => described(headers, "x-original-method", "x-original-uri")?,
            AuthProtocol::Envoy => (Cow::Borrowed(&head.method), after_prefix(&head.uri)),
        };
        let client = ResolvedClient {
            peer,
            client: client(clients, peer, headers),
            is_trusted: peer.is_some_and(|peer| clients.trusts(peer)),
        };
        Ok(Self { method, path, client, headers })
    }

    /// The request that Envoy describes, with the address that it came to Envoy from, and Envoy's own.
    pub(crate) fn of_envoy(
        method: &'r Method,
        path: &'r str,
        headers: &'r HeaderMap,
        (source, envoy): (Option<IpAddr>, Option<IpAddr>),
        clients: &ClientAddress,
    ) -> Self {
        let client = match source {
            Some(_) => clients.resolve(source, headers),
            None => client(clients, envoy, headers),
        };
        let is_trusted = envoy.is_some_and(|envoy| clients.trusts(envoy));
        let client = ResolvedClient { peer: envoy, client, is_trusted };
        Self { method: Cow::Borrowed(method), path: Cow::Borrowed(path), client, headers }
    }

    /// The head of the request. Its refusal is never one of gRPC, whose status a proxy would take
    /// for permission.
    pub(crate) fn head(&self) -> RequestHead<'_> {
        RequestHead::new(&self.method, &self.path, self.headers)
            .client(self.client)
            .described_by_proxy()
    }
}

/// The method and the path from a proxy's two headers.
fn described<'r>(
    headers: &'r HeaderMap,
    method_header: &'static str,
    uri_header: &'static str,
) -> Result<(Cow<'r, Method>, Cow<'r, str>), Problem> {
    let only = |name: &'static str| {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => Ok(value.as_bytes()),
            (None, _) => Err(invalid(name, "the proxy must send this header")),
            _ => Err(invalid(name, "the proxy must send this header once")),
        }
    };
    let method = only(method_header).and_then(|text| {
        Method::from_bytes(text).map_err(|_| invalid(method_header, "not a method"))
    });
    match (method, only(uri_header)) {
        (Ok(method), Ok(uri)) => Ok((Cow::Owned(method), path_of(uri))),
        (method, uri) => Err(Problem::invalid(method.err().into_iter().chain(uri.err()).collect())),
    }
}

fn invalid(header: &str, problem: &str) -> InvalidMember {
    InvalidMember { member: header.to_owned(), problem: problem.to_owned() }
}

/// The path of a request's target, which may be in absolute form.
fn path_of(target: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(target);
    if text.starts_with('/') {
        return text;
    }
    match text.parse::<Uri>() {
        Ok(uri) if uri.scheme().is_some() => Cow::Owned(uri.path().to_owned()),
        _ => text,
    }
}

fn after_prefix(uri: &Uri) -> Cow<'_, str> {
    match uri.path().strip_prefix(ENVOY_PREFIX) {
        Some(path) if !path.is_empty() => Cow::Borrowed(path),
        _ => Cow::Borrowed("/"),
    }
}

/// The client of the proxy that asks. Only proxies can reach this endpoint, so the entry that the
/// asking proxy adds to `X-Forwarded-For`, the last one, is trusted. The gateway's rules, which
/// know the proxies before that one, apply to the rest.
fn client(clients: &ClientAddress, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
    let added = LAST_FORWARDED.resolve(Some(ASKING), headers).filter(|hop| *hop != ASKING);
    match added {
        Some(hop) => clients.resolve(Some(hop), headers),
        None => peer.map(|peer| peer.to_canonical()),
    }
}

/// Stands for the proxy that asks, which may have no address. No client can have this one.
const ASKING: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

static LAST_FORWARDED: LazyLock<ClientAddress> = LazyLock::new(|| {
    let asking: Network = ASKING.to_string().parse().expect("an address is a network");
    ClientAddress::new(AddressSource::XForwardedFor, [asking])
});

/// A refusal as nginx carries it back, in Base64 of its JSON.
#[derive(Serialize, Deserialize)]
struct CarriedRefusal {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl CarriedRefusal {
    fn of(refusal: &Response<Bytes>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let headers = refusal.headers().iter();
        Self {
            status: refusal.status().as_u16(),
            headers: headers
                .map(|(name, value)| (name.to_string(), text(value.as_bytes())))
                .collect(),
            body: text(refusal.body()),
        }
    }

    fn encode(&self) -> HeaderValue {
        let json = serde_json::to_vec(self).expect("strings and numbers can be JSON");
        URL_SAFE_NO_PAD.encode(json).try_into().expect("Base64 is visible ASCII")
    }

    fn decode(value: &HeaderValue) -> Option<Response<Bytes>> {
        let json = URL_SAFE_NO_PAD.decode(value).ok()?;
        let Self { status, headers, body } = serde_json::from_slice(&json).ok()?;
        // Nothing else is a refusal, and a status such as 101 would change the connection.
        if !(400..600).contains(&status) {
            return None;
        }
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(name, value);
        }
        response.body(body.into()).ok()
    }
}

/// The refusal in a request that nginx makes for it.
pub(super) fn refusal_of_nginx(headers: &HeaderMap) -> Result<Response<Bytes>, Problem> {
    let refusal = headers.get(REFUSAL).and_then(CarriedRefusal::decode);
    refusal.ok_or_else(|| {
        let problem = "expected the value that /v1/auth/nginx gave with its refusal";
        Problem::invalid(vec![invalid(REFUSAL.as_str(), problem)])
    })
}

/// A refusal in headers, under a status that nginx takes for one.
pub(super) fn for_nginx(refusal: Response<Bytes>) -> Response<Bytes> {
    let carried = CarriedRefusal::of(&refusal).encode();
    let (mut head, body) = refusal.into_parts();
    head.headers.insert(REFUSAL, carried);
    head.headers.insert(STATUS, head.status.as_u16().into());
    if let Some(content_type) = head.headers.remove(header::CONTENT_TYPE) {
        head.headers.insert(CONTENT_TYPE, content_type);
    }
    // A header's value has one line.
    let line: Vec<u8> =
        body.iter().map(|byte| if byte.is_ascii_control() { b' ' } else { *byte }).collect();
    if let Ok(line) = HeaderValue::from_bytes(line.trim_ascii_end()) {
        head.headers.insert(BODY, line);
    }
    head.status = StatusCode::FORBIDDEN;
    Response::from_parts(head, Bytes::new())
}
