//! An endpoint whose answers come from a router.

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use slidegate_proxy::{Accepted, Handler, RequestBody};
use tower_service::Service;

/// Answers by a router. Handlers find the [`Accepted`] in the request's extensions.
#[derive(Debug, Clone)]
pub(crate) struct RouterService(pub(crate) Router);

impl Handler for RouterService {
    type Body = Body;

    async fn answer(&self, accepted: Accepted, request: Request<RequestBody>) -> Response<Body> {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(accepted);
        // A router without a state is always ready.
        let Ok(response) = self.0.clone().call(request).await;
        response
    }
}
