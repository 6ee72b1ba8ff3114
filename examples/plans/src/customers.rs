//! Who the customers are, and what they have bought.

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use slidegate_tower::{User, UserPlan};

/// A customer: its API key, its name and its plan.
struct Customer {
    key: &'static str,
    name: &'static str,
    plan: &'static str,
}

/// A real application has a table in its database.
const CUSTOMERS: [Customer; 3] = [
    Customer { key: "key-of-ann", name: "ann", plan: "free" },
    Customer { key: "key-of-bob", name: "bob", plan: "pro" },
    Customer { key: "key-of-cho", name: "cho", plan: "enterprise" },
];

/// Lets customers in, and tells the limiter who they are and which plan they have.
pub(crate) async fn authenticate(mut request: Request, next: Next) -> Response {
    let key = request.headers().get("x-api-key").map(|key| key.as_bytes());
    let Some(customer) = CUSTOMERS.iter().find(|customer| Some(customer.key.as_bytes()) == key)
    else {
        let body = Json(json!({ "error": "Send the API key of a customer in X-API-Key" }));
        return (StatusCode::UNAUTHORIZED, body).into_response();
    };
    request.extensions_mut().insert(User(customer.name.to_owned()));
    request.extensions_mut().insert(UserPlan(customer.plan.to_owned()));
    next.run(request).await
}
