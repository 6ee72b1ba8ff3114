//! HTTP/1.1 with clients, spoken in one task for each connection.
//!
//! hyper's server side keeps the parts of a connection apart with channels and states that each
//! request pays for. For requests as small as most are, that costs as much as the gateway's own work;
//! so this is by hand, with httparse for the heads and chunks.
//!
//! ```text
//! Wire ─▶ request::take ─▶ Answer ─▶ response::begin ─▶ Wire
//!          └─ Intake ─▶ Upload, if the body is not there yet
//! ```

mod conversation;
mod date;
mod intake;
mod request;
mod response;
mod wire;

pub(super) use self::conversation::{ConversationSettings, converse};
pub(super) use self::intake::Upload;
