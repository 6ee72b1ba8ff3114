//! `Authorization/Check`: `ext_authz` over gRPC, by the policies for requests.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use slidegate::Clock;
use slidegate::policy::without_query;
use slidegate_proxy::Accepted;
use slidegate_tower::LimiterOutcome;
use tonic::{Code, Request, Response, Status};

use super::proto::envoy::config::core::v3::HeaderValueOption;
use super::proto::envoy::config::core::v3::address::Address::SocketAddress;
use super::proto::envoy::service::auth::v3::attribute_context::HttpRequest;
use super::proto::envoy::service::auth::v3::authorization_server::Authorization;
use super::proto::envoy::service::auth::v3::check_response::HttpResponse;
use super::proto::envoy::service::auth::v3::{
    CheckRequest, CheckResponse, DeniedHttpResponse, OkHttpResponse,
};
use super::proto::envoy::r#type::v3::HttpStatus;
use super::proto::google::rpc;
use super::{Asked, EnvoyService, header_values};
use crate::decisions::OriginalRequest;

#[tonic::async_trait]
impl Authorization for EnvoyService {
    async fn check(
        &self,
        request: Request<CheckRequest>,
    ) -> Result<Response<CheckResponse>, Status> {
        let began = self.clock.now();
        let envoy = request.extensions().get::<Accepted>().and_then(|accepted| accepted.peer);
        let attributes = request.into_inner().attributes.unwrap_or_default();
        let http = attributes.request.and_then(|request| request.http);
        let http = http.ok_or_else(|| Status::invalid_argument("expected an HTTP request"))?;
        let source = attributes.source.and_then(|peer| peer.address?.address);
        let source = source.and_then(|SocketAddress(socket)| socket.address.parse().ok());
        let method: Method = http
            .method
            .parse()
            .map_err(|_| Status::invalid_argument("expected a method such as GET"))?;
        let headers = headers(&http);
        let settings = self.live.settings();
        let clients = &settings.limiter.client_address;
        let original =
            OriginalRequest::of_envoy(&method, &http.path, &headers, (source, envoy), clients);
        let (response, decision) = match settings.decide(original.head()).await {
            LimiterOutcome::Refuse(refusal, decision) => (refusal, decision),
            LimiterOutcome::Pass(decision) => {
                let mut allowed = http::Response::default();
                settings.limiter.annotate(decision.as_ref(), &mut allowed);
                (allowed, decision)
            }
        };
        let client = original.client.client;
        let path = without_query(&http.path);
        let asked = Asked { began, method: &method, path, client };
        self.record(&asked, response.status(), decision.as_ref());
        Ok(Response::new(answer(response)))
    }
}

/// The client's headers; without `:path` and the like, which Envoy sends along.
fn headers(http: &HttpRequest) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(http.headers.len());
    let raw = http.header_map.iter().flat_map(|map| &map.headers);
    let raw = raw.map(|line| match line.raw_value.is_empty() {
        true => (&line.key, line.value.as_bytes()),
        false => (&line.key, &line.raw_value[..]),
    });
    let joined = http.headers.iter().map(|(name, value)| (name, value.as_bytes()));
    for (name, value) in raw.chain(joined) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(value))
        {
            headers.append(name, value);
        }
    }
    headers
}

fn answer(response: http::Response<bytes::Bytes>) -> CheckResponse {
    let (head, body) = response.into_parts();
    let headers = header_values(&head.headers)
        .map(|header| HeaderValueOption { header: Some(header) })
        .collect();
    let (code, http_response) = match head.status.as_u16() {
        200 => (
            Code::Ok,
            HttpResponse::OkResponse(OkHttpResponse { response_headers_to_add: headers }),
        ),
        status => {
            let code = match status {
                429 => Code::ResourceExhausted,
                503 => Code::Unavailable,
                _ => Code::PermissionDenied,
            };
            let status = Some(HttpStatus { code: status.into() });
            let body = String::from_utf8_lossy(&body).into_owned();
            (code, HttpResponse::DeniedResponse(DeniedHttpResponse { status, headers, body }))
        }
    };
    let status = rpc::Status { code: code.into(), message: String::new() };
    CheckResponse { status: Some(status), http_response: Some(http_response) }
}
