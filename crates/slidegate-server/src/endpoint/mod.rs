//! What the HTTP endpoints of programs and operators have in common: who may call them, bodies in, and
//! problem details out.

pub(crate) mod access;
pub(crate) mod json_body;
pub(crate) mod problem;
pub(crate) mod router;
pub(crate) mod token;
