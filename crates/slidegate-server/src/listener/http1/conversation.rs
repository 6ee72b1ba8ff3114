//! A connection from its first request to its last.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::http::{Request, Response, StatusCode};
use bytes::Bytes;
use http_body::Body;
use slidegate::limit::SystemClock;
use tokio::io::{AsyncWriteExt, copy, sink};
use tokio::task::unconstrained;
use tokio::time::timeout;

use super::intake::{self, Intake};
use super::request::{self, MalformedRequest, ParsedHead, Terms};
use super::response::{self, ResponseWriter};
use super::wire::Wire;
use crate::config::Timeouts;
use crate::http1::{Alarm, Turn};
use crate::listener::course::ConnectionEnd;
use crate::listener::guarded::Guarded;
use crate::listener::stream::{Rewound, TransportStream};
use crate::listener::upgrade::{Handover, handover};
use crate::listener::{Accepted, Handler, RequestBody};
use crate::shutdown::Shutdown;

/// After its last answer a connection is read for a while, and what comes is thrown away: if it
/// were closed with bytes unread, the kernel would tell the client of an error, and that error may
/// overtake the answer.
const LINGER: Duration = Duration::from_secs(2);

type ClientStream = Guarded<Rewound<TransportStream>>;

/// How connections are treated.
#[derive(Debug)]
pub(in crate::listener) struct ConversationSettings {
    head: Duration,
    idle: Duration,
    head_bytes: usize,
    clock: SystemClock,
}

impl ConversationSettings {
    pub(in crate::listener) fn new(timeouts: &Timeouts, head_bytes: usize) -> Self {
        Self { head: timeouts.head, idle: timeouts.idle, head_bytes, clock: SystemClock::new() }
    }
}

/// Speaks HTTP/1.1 on a stream until its end.
pub(in crate::listener) async fn converse<A: Handler>(
    stream: ClientStream,
    answer: &mut A,
    accepted: Accepted,
    settings: &ConversationSettings,
    shutdown: &mut Shutdown,
) -> ConnectionEnd {
    let word = shutdown.clone();
    // If it were told to wait its turn, nobody would wake it.
    let begun = pin!(unconstrained(shutdown.begun()));
    let mut conversation = Conversation {
        wire: Wire::new(stream),
        settings,
        alarm: Alarm::default(),
        word,
        begun,
        is_listening: false,
    };
    let over = conversation.go_on(answer, accepted).await;
    conversation.close(over).await
}

struct Conversation<'a> {
    wire: Wire<ClientStream>,
    settings: &'a ConversationSettings,
    alarm: Alarm,
    word: Shutdown,
    /// Wakes the task when it is time to go.
    begun: Pin<&'a mut (dyn Future<Output = ()> + Send)>,
    /// Whether it does. A task has one waker for all its life, so once is enough.
    is_listening: bool,
}

/// How a conversation came to its end.
enum Over {
    /// With an answer that is the last.
    Answered,
    /// While nothing was going on.
    Idle,
    /// Something failed midway.
    Broken,
    /// The client took too long.
    TimedOut,
    /// It goes on in another protocol.
    Upgraded(Handover),
}

impl Conversation<'_> {
    async fn go_on<A: Handler>(&mut self, answer: &mut A, accepted: Accepted) -> Over {
        loop {
            let mut request = Request::new(RequestBody::default());
            let ParsedHead { length, terms, expects_word, wants_upgrade } =
                match self.next_head(&mut request).await {
                    Ok(head) => head,
                    Err(over) => return over,
                };
            let (unread, body) = (&mut self.wire.unread, request.body_mut());
            let mut intake = intake::begin(length, expects_word, unread, body);
            let mut upgrade = None;
            if wants_upgrade {
                let (handover, on_upgrade) = handover();
                request.extensions_mut().insert(on_upgrade);
                upgrade = Some(handover);
            }
            let mut answering = pin!(answer.answer(accepted, request));
            let answered = poll_fn(|cx| self.poll_answer(answering.as_mut(), &mut intake, cx));
            let Some(response) = answered.await else { return Over::Broken };
            let is_switching = response.status() == StatusCode::SWITCHING_PROTOCOLS;
            if let Err(over) = self.respond(response, terms, &mut intake).await {
                return over;
            }
            if is_switching {
                return upgrade.map_or(Over::Answered, Over::Upgraded);
            }
        }
    }

    /// The next request's head, put into the request. It may take some time to begin, and some to
    /// be complete.
    async fn next_head(&mut self, request: &mut Request<RequestBody>) -> Result<ParsedHead, Over> {
        let mut awaited = None;
        let mut is_new = true;
        let mut turn = Turn::default();
        let head = poll_fn(|cx| {
            loop {
                self.wire.skip_blank_lines();
                // Who sends it byte by byte shall not have it read as often.
                if is_new && !self.wire.unread.is_empty() {
                    ready!(turn.poll(cx));
                    match request::take(&mut self.wire.unread, self.settings.head_bytes, request) {
                        Ok(Some(head)) => return Poll::Ready(Ok(Ok(head))),
                        Ok(None) => is_new = false,
                        Err(flaw) => return Poll::Ready(Ok(Err(flaw))),
                    }
                }
                let before = self.wire.unread.len();
                match self.wire.poll_fill(cx) {
                    Poll::Ready(Ok(1..)) => is_new |= before == 0 || self.has_new_line(before),
                    Poll::Ready(Ok(0)) if before == 0 => return Poll::Ready(Err(Over::Idle)),
                    Poll::Ready(_) => return Poll::Ready(Err(Over::Broken)),
                    Poll::Pending => return self.poll_patience(&mut awaited, cx).map(Err),
                }
            }
        });
        match head.await? {
            Ok(head) => Ok(head),
            Err(flaw) => Err(self.refuse(flaw).await),
        }
    }

    fn has_new_line(&self, from: usize) -> bool {
        self.wire.unread.len() > self.settings.head_bytes
            || self.wire.unread[from..].contains(&b'\n')
    }

    /// Ready when it is no use to wait any longer.
    fn poll_patience(&mut self, awaited: &mut Option<Awaited>, cx: &mut Context<'_>) -> Poll<Over> {
        let is_idle = self.wire.unread.is_empty();
        let (awaits, patience) = match is_idle {
            true => (Awaited::Beginning, self.settings.idle),
            false => (Awaited::Rest, self.settings.head),
        };
        if is_idle && self.is_time_to_go(cx) {
            return Poll::Ready(Over::Idle);
        }
        if awaited.replace(awaits) != Some(awaits) {
            self.alarm.set(patience);
        }
        ready!(self.alarm.poll(cx));
        Poll::Ready(if is_idle { Over::Idle } else { Over::TimedOut })
    }

    fn is_time_to_go(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.is_listening {
            self.is_listening = true;
            return self.begun.as_mut().poll(cx).is_ready();
        }
        self.word.has_begun()
    }

    async fn refuse(&mut self, flaw: MalformedRequest) -> Over {
        response::refuse(flaw, &self.settings.clock, &mut self.wire.unsent);
        match poll_fn(|cx| self.wire.poll_flush(cx)).await {
            Ok(()) => Over::Answered,
            Err(_) => Over::Broken,
        }
    }

    /// The answer, unless the client leaves first. Meanwhile whoever answers may read the request's
    /// body.
    fn poll_answer<B>(
        &mut self,
        mut answering: Pin<&mut impl Future<Output = Response<B>>>,
        intake: &mut Option<Intake>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Response<B>>> {
        loop {
            if let Poll::Ready(response) = answering.as_mut().poll(cx) {
                return Poll::Ready(Some(response));
            }
            match intake {
                Some(intake) if !intake.is_over() => {
                    if !intake.pump(&mut self.wire, cx) {
                        return Poll::Pending;
                    }
                }
                _ => return self.poll_departure(cx).map(|()| None),
            }
        }
    }

    /// Ready when the client has left. One that has sent its next request already has not.
    fn poll_departure(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            self.wire.skip_blank_lines();
            if !self.wire.unread.is_empty() {
                return Poll::Pending;
            }
            match ready!(self.wire.poll_fill(cx)) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Poll::Ready(()),
            }
        }
    }

    /// Sends an answer. An error if the connection cannot be used again.
    async fn respond<B>(
        &mut self,
        mut response: Response<B>,
        terms: Terms,
        intake: &mut Option<Intake>,
    ) -> Result<(), Over>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin,
    {
        if let Some(intake) = intake {
            intake.be_answered();
        }
        // It is said in the answer, if it is known by then.
        let keeps = !self.word.has_begun() && self.is_readable_on(intake);
        let (clock, bytes) = (&self.settings.clock, &mut self.wire.unsent);
        let mut outgoing = response::begin(&response, terms, keeps, clock, bytes);
        let mut turn = Turn::default();
        poll_fn(|cx| {
            ready!(turn.poll(cx));
            self.poll_send(&mut outgoing, response.body_mut(), intake, cx)
        })
        .await?;
        // Whoever reads the request's body may wait for this.
        drop(response);
        if let Some(intake) = intake {
            self.alarm.set(self.settings.idle);
            poll_fn(|cx| self.poll_upload(intake, cx)).await?;
        }
        if !outgoing.keeps || !self.is_readable_on(intake) {
            return Err(Over::Answered);
        }
        self.wire.rest();
        Ok(())
    }

    /// Whether another request can follow the body of this one.
    fn is_readable_on(&mut self, intake: &mut Option<Intake>) -> bool {
        match intake {
            Some(intake) => !intake.is_over() || intake.finish(&mut self.wire.unread),
            None => true,
        }
    }

    fn poll_send<B>(
        &mut self,
        outgoing: &mut ResponseWriter,
        body: &mut B,
        intake: &mut Option<Intake>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Over>>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin,
    {
        loop {
            let mut is_pending = false;
            while !outgoing.has_ended() && !is_pending && self.wire.has_room() {
                match Pin::new(&mut *body).poll_frame(cx) {
                    Poll::Ready(frame) => {
                        let written = frame.transpose().map_err(Into::into);
                        let written =
                            written.and_then(|frame| outgoing.write(frame, &mut self.wire));
                        if let Err(error) = written {
                            tracing::debug!(
                                error = &*error as &dyn std::error::Error,
                                "response body failed"
                            );
                            // The client shall have what there is.
                            let _ = self.wire.poll_flush(cx);
                            return Poll::Ready(Err(Over::Broken));
                        }
                    }
                    Poll::Pending => is_pending = true,
                }
            }
            let is_pumped = match intake {
                Some(intake) if !intake.is_over() => intake.pump(&mut self.wire, cx),
                _ => false,
            };
            match self.wire.poll_flush(cx) {
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Over::Broken)),
                Poll::Ready(Ok(())) if outgoing.has_ended() => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(())) if !is_pending => {}
                _ if is_pumped => {}
                // Who has left needs no more.
                Poll::Ready(Ok(())) if intake.as_ref().is_none_or(Intake::is_over) => {
                    return self.poll_departure(cx).map(|()| Err(Over::Broken));
                }
                _ => return Poll::Pending,
            }
        }
    }

    /// Ready when nobody reads the request's body any longer.
    fn poll_upload(&mut self, intake: &mut Intake, cx: &mut Context<'_>) -> Poll<Result<(), Over>> {
        while !intake.is_over() {
            if intake.pump(&mut self.wire, cx) {
                self.alarm.set(self.settings.idle);
            } else {
                return self.alarm.poll(cx).map(|()| Err(Over::TimedOut));
            }
        }
        Poll::Ready(Ok(()))
    }

    async fn close(self, over: Over) -> ConnectionEnd {
        let Wire { mut stream, unread, .. } = self.wire;
        match over {
            Over::Answered => {
                if stream.shutdown().await.is_ok() && !stream.has_ended() {
                    let _ = timeout(LINGER, copy(&mut stream, &mut sink())).await;
                }
            }
            Over::Idle => {
                let _ = stream.shutdown().await;
            }
            Over::Broken => {}
            Over::TimedOut => return ConnectionEnd::TimedOut,
            Over::Upgraded(handover) => handover.complete(stream, unread.freeze()),
        }
        ConnectionEnd::Over
    }
}

/// What of a head is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Beginning,
    Rest,
}
