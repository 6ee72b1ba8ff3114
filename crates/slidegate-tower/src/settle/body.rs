//! The body of a response whose cost may be in it.

use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use slidegate::Hold;
use slidegate::policy::{CostSource, JsonPath};
use smallvec::SmallVec;

use super::reader::{BodyReader, Found};
use super::{Settle, SettleOutcome, UnreadReason};

pin_project! {
    /// A response's body, whose cost is read as it streams by, if it has to be. Nothing is held back.
    #[derive(Debug)]
    pub struct SettlingBody<B> {
        #[pin]
        body: B,
        cost: Option<Box<BodyCost>>,
    }
}

impl<B> SettlingBody<B> {
    pub(crate) fn new(body: B, cost: Option<BodyCost>) -> Self {
        Self { body, cost: cost.map(Box::new) }
    }

    /// A body that says nothing about a cost.
    pub fn plain(body: B) -> Self {
        Self::new(body, None)
    }
}

/// The charges whose cost is in a body. Dropped before the body has ended, they cost what was held at
/// least.
pub(crate) struct BodyCost {
    hold: Hold,
    settler: Arc<dyn Settle>,
    reader: BodyReader,
    has_ended: bool,
}

/// More pieces than a frame of any usual body has.
const MAX_PIECES: usize = 16;

impl BodyCost {
    pub(super) fn new(hold: Hold, settler: Arc<dyn Settle>, headers: &HeaderMap) -> Self {
        let path =
            |charge: &slidegate::HeldCharge| match charge.response.as_deref()?.cost.as_ref()? {
                CostSource::Json(path) => Some(path.clone()),
                CostSource::Header(_) | CostSource::Application => None,
            };
        let paths: SmallVec<[JsonPath; 1]> = hold.charges.iter().filter_map(path).collect();
        let reader = BodyReader::new(headers, paths);
        Self { hold, settler, reader, has_ended: false }
    }

    fn read(&mut self, data: &impl Buf) {
        let mut pieces = [IoSlice::new(&[]); MAX_PIECES];
        let count = data.chunks_vectored(&mut pieces);
        let read: usize = pieces[..count].iter().map(|piece| piece.len()).sum();
        if read < data.remaining() {
            self.reader = BodyReader::Unread(UnreadReason::TooLarge);
        }
        pieces[..count].iter().for_each(|piece| self.reader.read(piece));
    }

    fn settle(&mut self) {
        let reader = std::mem::replace(&mut self.reader, BodyReader::Unread(UnreadReason::Missing));
        let Found { units, is_whole, reason } = reader.finish();
        let has_ended = self.has_ended || is_whole;
        let (mut known, mut costs) = (Hold::default(), SmallVec::new());
        for (index, charge) in std::mem::take(&mut self.hold).charges.into_iter().enumerate() {
            match units.get(index).copied().flatten() {
                Some(units) => {
                    // What a client has not waited for is not refunded.
                    costs.push(if has_ended { units } else { units.max(charge.units.get()) });
                    known.charges.push(charge);
                }
                None => {
                    let is_aborted = !has_ended && reason == UnreadReason::Missing;
                    let reason = if is_aborted { UnreadReason::Aborted } else { reason };
                    self.settler.report(&charge, SettleOutcome::Unread(reason));
                }
            }
        }
        if !known.is_empty() {
            self.settler.settle(known, costs);
        }
    }
}

impl Drop for BodyCost {
    fn drop(&mut self) {
        self.settle();
    }
}

impl std::fmt::Debug for BodyCost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BodyCost").field("hold", &self.hold).finish_non_exhaustive()
    }
}

impl<B: Body> Body for SettlingBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(cx));
        if let Some(cost) = this.cost {
            if let Some(Ok(data)) = frame.as_ref().map(|frame| frame.as_ref().map(Frame::data_ref))
                && let Some(data) = data
            {
                cost.read(data);
            }
            let has_failed = matches!(frame, Some(Err(_)));
            // A server that knows the length need not ask for more.
            if frame.is_none() || has_failed || this.body.is_end_stream() {
                cost.has_ended = !has_failed;
                *this.cost = None;
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
