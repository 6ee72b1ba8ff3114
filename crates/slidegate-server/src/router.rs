//! An endpoint whose answers come from a router.

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use tower_service::Service;

use crate::listener::{Accepted, Handler, RequestBody};

/// Answers by a router. Handlers find the [`Accepted`] in the request's extensions.
#[derive(Debug, Clone)]
pub(crate) struct RouterService(pub(crate) Router);

impl Handler for RouterService {
    type Body = Body;

    async fn answer(
        &mut self,
        accepted: Accepted,
        request: Request<RequestBody>,
    ) -> Response<Body> {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(accepted);
        // A router without a state is always ready.
        let Ok(response) = self.0.clone().call(request).await;
        response
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::Extension;
    use axum::routing::post;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn handlers_get_the_body_and_know_the_connection() {
        let tell = |Extension(accepted): Extension<Accepted>, body: String| async move {
            format!("{body} from {:?}", accepted.peer)
        };
        let routed = RouterService(Router::new().route("/", post(tell)));
        let accepted = Accepted { peer: Some([10, 0, 0, 1].into()), secure: false };
        let (mut client, server) = tokio::io::duplex(1024);
        let serve = service_fn(move |request: Request<hyper::body::Incoming>| {
            let mut routed = routed.clone();
            async move {
                let response = routed.answer(accepted, request.map(RequestBody::from)).await;
                Ok::<_, Infallible>(response)
            }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(server), serve));
        let request =
            b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi";
        client.write_all(request).await.unwrap();
        let mut response = String::new();
        client.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
        assert!(response.ends_with("hi from Some(10.0.0.1)"), "{response}");
    }
}
