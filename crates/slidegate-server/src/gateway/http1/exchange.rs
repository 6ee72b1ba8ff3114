//! A request on its way over a connection, until its response has begun.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::uri::Authority;
use http::{Method, Request, Response};
use http_body::Body;

use super::connection::Http1Connection;
use super::incoming::IncomingBody;
use super::outgoing::{self, RequestWriter};
use super::response::{self, ResponseHead};
use crate::gateway::body::{BodyError, Timed};
use crate::gateway::progress::UploadError;
use crate::gateway::proxy_headers::ProxyHeaders;
use crate::http1::Malformed;

/// A connection with a request on it, of whose body there may be more to send.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(super) connection: Box<Http1Connection>,
    /// Apart, because most requests have no body and none is to carry it.
    outgoing: Option<Box<RequestWriter>>,
    method: Method,
    /// How many heads have come that only tell of one to come.
    early: u32,
}

/// Why there is no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExchangeError {
    /// Nothing of the request has left.
    Unsent,
    /// Upstream broke off without a word.
    Silent,
    /// Upstream broke off, or did not answer in HTTP.
    Broken,
    /// Upstream does not answer.
    Late,
    /// The request's body has no good end.
    Body(UploadError),
}

/// What the sending of a body waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    /// The client, for more of it.
    Client,
    /// Upstream, to take what is there.
    Upstream,
    /// Nothing: all is sent, or upstream takes no more.
    Done,
}

impl Exchange {
    /// Sends a request's head, and takes the request once that has gone, unless the head is all of
    /// it.
    pub(crate) async fn begin(
        mut connection: Box<Http1Connection>,
        request: &mut Option<Request<Timed>>,
        proxy_headers: &ProxyHeaders,
        upstream: &Authority,
        patience: Duration,
    ) -> Result<Self, ExchangeError> {
        let head = request.as_ref().ok_or(ExchangeError::Broken)?;
        outgoing::write_head(head, proxy_headers, upstream, &mut connection.unsent);
        connection.alarm.set(patience);
        connection.has_heard = false;
        poll_fn(|cx| {
            if let Poll::Ready(flushed) = connection.poll_flush(cx) {
                let failure = if connection.has_sent() {
                    ExchangeError::Broken
                } else {
                    ExchangeError::Unsent
                };
                return Poll::Ready(flushed.map_err(|_| failure));
            }
            connection.alarm.poll(cx).map(|()| Err(ExchangeError::Late))
        })
        .await?;
        let method = head.method().clone();
        let has_body = !head.body().is_end_stream();
        let outgoing = request.take_if(|_| has_body);
        let outgoing = outgoing.map(|request| Box::new(RequestWriter::new(request)));
        Ok(Self { connection, outgoing, method, early: 0 })
    }

    /// The response to the request, unless it is late. It is not as long as the request's body
    /// still moves.
    pub(crate) async fn response(
        mut self,
        patience: Duration,
        idle: Duration,
    ) -> Result<Response<IncomingBody>, ExchangeError> {
        let head = poll_fn(|cx| self.poll_response(cx, patience)).await?;
        self.connection.alarm.stop();
        Ok(IncomingBody::of(self, head, idle))
    }

    fn poll_response(
        &mut self,
        cx: &mut Context<'_>,
        patience: Duration,
    ) -> Poll<Result<ResponseHead, ExchangeError>> {
        if self.outgoing.is_some()
            && let Err(error) = self.send_in_time(cx, patience)
        {
            return Poll::Ready(Err(ExchangeError::Body(error.flaw())));
        }
        if let Poll::Ready(head) = self.poll_head(cx) {
            return Poll::Ready(head);
        }
        self.connection.alarm.poll(cx).map(|()| Err(ExchangeError::Late))
    }

    /// Ready when nothing more of the request's body can be sent, for whatever reason.
    pub(super) fn poll_rest(&mut self, cx: &mut Context<'_>, patience: Duration) -> Poll<()> {
        match self.send_in_time(cx, patience) {
            Err(_) | Ok(Sending::Done) => Poll::Ready(()),
            Ok(Sending::Client | Sending::Upstream) => self.connection.alarm.poll(cx),
        }
    }

    /// Sends what can be sent, and puts the alarm off while something moves. How long the client may
    /// take is the body's own affair.
    fn send_in_time(
        &mut self,
        cx: &mut Context<'_>,
        patience: Duration,
    ) -> Result<Sending, BodyError> {
        let before = self.connection.progress();
        let sending = self.poll_send(cx)?;
        if sending == Sending::Client {
            self.connection.alarm.stop();
        } else if !self.connection.alarm.is_set() || self.connection.progress() != before {
            self.connection.alarm.set(patience);
        }
        Ok(sending)
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<ResponseHead, ExchangeError>> {
        loop {
            match response::take(&mut self.connection.unread, &self.method, &mut self.early) {
                Ok(Some(head)) => return Poll::Ready(Ok(head)),
                Ok(None) => {}
                Err(Malformed) => return Poll::Ready(Err(ExchangeError::Broken)),
            }
            match ready!(self.connection.poll_fill(cx)) {
                Ok(0) | Err(_) if self.connection.has_heard => {
                    return Poll::Ready(Err(ExchangeError::Broken));
                }
                Ok(0) | Err(_) => return Poll::Ready(Err(ExchangeError::Silent)),
                Ok(_) => {}
            }
        }
    }

    /// Sends as much of the request's body as can be sent. That upstream takes no more is no error
    /// yet: it may have answered.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Result<Sending, BodyError> {
        while let Some(outgoing) = &mut self.outgoing {
            match self.connection.poll_flush(cx) {
                Poll::Pending => return Ok(Sending::Upstream),
                Poll::Ready(Err(_)) => return Ok(Sending::Done),
                Poll::Ready(Ok(())) if outgoing.has_ended() => self.outgoing = None,
                Poll::Ready(Ok(())) => {
                    let written = outgoing.poll_write(cx, &mut self.connection.unsent);
                    let Poll::Ready(written) = written else { return Ok(Sending::Client) };
                    written?;
                }
            }
        }
        Ok(Sending::Done)
    }

    /// Whether upstream has the whole request.
    pub(super) fn has_sent(&self) -> bool {
        self.outgoing.is_none()
    }
}
