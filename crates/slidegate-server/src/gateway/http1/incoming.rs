//! The body of a response as it comes from upstream.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};

use super::connection::Http1Connection;
use super::exchange::Exchange;
use super::response::{ResponseHead, ResponseLength};
use crate::gateway::body::BodyError;
use crate::http1::{Chunks, Found};

/// A response's body, with the connection that it comes over.
#[derive(Debug)]
pub(crate) struct IncomingBody {
    exchange: Exchange,
    left: Left,
    had_body: bool,
    /// Whether the connection can be used again.
    stays: bool,
    /// How long upstream says that it keeps the connection when it is idle.
    kept_for: Option<Duration>,
    /// How long the next piece may take.
    idle: Duration,
}

/// What is still to come.
#[derive(Debug)]
enum Left {
    Bytes(u64),
    Chunks(Chunks),
    UntilClosed,
    Nothing,
}

type BodyPart = Option<Result<Frame<Bytes>, BodyError>>;

impl IncomingBody {
    /// A response, with the body that comes over its connection.
    pub(super) fn of(exchange: Exchange, head: ResponseHead, idle: Duration) -> Response<Self> {
        let ResponseHead { response, length, stays, kept_for } = head;
        let left = match length {
            ResponseLength::Bytes(0) => Left::Nothing,
            ResponseLength::Bytes(count) => Left::Bytes(count),
            ResponseLength::Chunked => Left::Chunks(Chunks::default()),
            ResponseLength::UntilClosed => Left::UntilClosed,
        };
        let had_body = length != ResponseLength::Bytes(0);
        response.map(|()| Self { exchange, left, had_body, stays, kept_for, idle })
    }

    /// How long upstream says that it keeps the connection when it is idle.
    pub(crate) fn kept_for(&self) -> Option<Duration> {
        self.kept_for
    }

    /// The connection, for another request, if the response is over and upstream has all of its
    /// request and has said nothing more.
    pub(crate) fn into_connection(self) -> Option<Box<Http1Connection>> {
        let is_over = matches!(self.left, Left::Nothing) && self.exchange.has_sent();
        let mut connection = self.exchange.connection;
        if !self.stays || !is_over || !connection.unread.is_empty() {
            return None;
        }
        connection.rest(self.had_body);
        Some(connection)
    }

    /// The connection, for whatever else is spoken on it from now on, if upstream has all of the
    /// request.
    pub(crate) fn into_upgraded(self) -> Option<Box<Http1Connection>> {
        self.exchange.has_sent().then_some(self.exchange.connection)
    }

    /// Whether there is more of the request to send.
    pub(crate) fn is_sending(&self) -> bool {
        !self.exchange.has_sent()
    }

    /// Sends the rest of the request to an upstream that has answered before it had all of it.
    pub(crate) async fn finish_sending(mut self) {
        let idle = self.idle;
        poll_fn(|cx| self.exchange.poll_rest(cx, idle)).await;
    }

    /// What is there already, without reading more.
    fn take(&mut self) -> Option<BodyPart> {
        let unread = &mut self.exchange.connection.unread;
        match &mut self.left {
            Left::Nothing => Some(None),
            Left::Bytes(left) => {
                let count = unread.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                if count == 0 {
                    return None;
                }
                *left -= count as u64;
                if *left == 0 {
                    self.left = Left::Nothing;
                }
                Some(Some(Ok(Frame::data(unread.split_to(count).freeze()))))
            }
            Left::UntilClosed if unread.is_empty() => None,
            Left::UntilClosed => Some(Some(Ok(Frame::data(unread.split().freeze())))),
            Left::Chunks(chunks) => {
                let piece = match chunks.take(unread) {
                    Ok(Found::More) => return None,
                    Ok(Found::Data(data)) => Some(Ok(Frame::data(data))),
                    Ok(Found::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
                    Ok(Found::End) => None,
                    Err(_) => Some(Err(BodyError::Malformed)),
                };
                if chunks.has_ended() {
                    self.left = Left::Nothing;
                }
                Some(piece)
            }
        }
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        let connection = &mut self.exchange.connection;
        if let Poll::Ready(read) = connection.poll_fill(cx) {
            connection.alarm.stop();
            return Poll::Ready(match (read, &self.left) {
                (Ok(0), Left::UntilClosed) => {
                    self.left = Left::Nothing;
                    Ok(())
                }
                (Ok(0) | Err(_), _) => Err(BodyError::Cut),
                (Ok(_), _) => Ok(()),
            });
        }
        if !connection.alarm.is_set() {
            connection.alarm.set(self.idle);
        }
        ready!(connection.alarm.poll(cx));
        Poll::Ready(Err(BodyError::Stalled))
    }
}

impl Body for IncomingBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BodyPart> {
        // Upstream may answer while it still reads.
        if !self.exchange.has_sent() && self.exchange.poll_send(cx).is_err() {
            return Poll::Ready(Some(Err(BodyError::Upload)));
        }
        loop {
            if let Some(piece) = self.take() {
                return Poll::Ready(piece);
            }
            if let Err(error) = ready!(self.poll_more(cx)) {
                return Poll::Ready(Some(Err(error)));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.left, Left::Nothing)
    }

    fn size_hint(&self) -> SizeHint {
        match self.left {
            Left::Nothing => SizeHint::with_exact(0),
            Left::Bytes(left) => SizeHint::with_exact(left),
            Left::Chunks(_) | Left::UntilClosed => SizeHint::default(),
        }
    }
}
