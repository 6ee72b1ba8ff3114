//! Units that programs hold until their true cost is known.
//!
//! The answer that holds them has an id, which carries what was held, sealed. So every gateway that has
//! the key can settle it, and no gateway keeps a table.

mod id;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use slidegate::limit::{Once, Settled};
use slidegate::{Clock, Decision, HeldCharge, Hold, SpentIn, StoreError, Timestamp};
use slidegate_redis::SharedSecret;

use self::id::{IdKey, SealedHold};
use crate::observe::{Observer, SettlementOutcome};

/// Makes ids of what was held, and settles by them.
pub(crate) struct Holds {
    observer: Observer,
    clock: Arc<dyn Clock>,
    settle_within: Duration,
    /// None if the system has no random numbers: then there are no ids.
    own: Option<OwnKey>,
    /// What the gateways on one Redis have in common, the newest first. The one before is kept for ids
    /// that it has sealed, should Redis have lost it.
    shared: RwLock<[Option<SharedKey>; 2]>,
}

/// A key of this process.
struct OwnKey {
    key: IdKey,
    /// By which the process knows its own ids: what local policies have spent is only here.
    process: u64,
}

struct SharedKey {
    secret: SharedSecret,
    key: IdKey,
}

/// Why nothing was settled.
#[derive(Debug)]
pub(crate) enum SettleError {
    /// No gateway on this Redis made such an id, or it has expired.
    Unknown,
    /// All of it was spent under local policies of another process.
    Elsewhere,
    /// It was settled before.
    Repeated,
    /// The key of the gateways was not read from Redis yet.
    NoKey,
    /// It may not be settled, and can be by the same id.
    Store(StoreError),
}

/// How much the calendars of two gateways may differ without an id being settled twice.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(60);

impl Holds {
    pub(crate) fn new(observer: Observer, clock: Arc<dyn Clock>, settle_within: Duration) -> Self {
        let own = OwnKey::random();
        Self { observer, clock, settle_within, own, shared: RwLock::default() }
    }

    /// Seals with the key of all gateways from now on.
    pub(crate) fn share(&self, secret: &SharedSecret) {
        let is_known = |key: &SharedKey| key.secret == *secret;
        if self.shared.read()[0].as_ref().is_some_and(is_known) {
            return;
        }
        let key = IdKey::new(secret.as_str().as_bytes());
        let mut shared = self.shared.write();
        shared.swap(0, 1);
        shared[0] = Some(SharedKey { secret: secret.clone(), key });
    }

    /// The id by which what a decision has spent can be settled, if there is something. The charges that
    /// `is_open` picks cost what they are settled with, the others keep their cost unless everything is
    /// refunded.
    pub(crate) fn id_of(
        &self,
        decision: &Decision,
        is_open: impl Fn(&HeldCharge) -> bool,
    ) -> Option<String> {
        let hold = decision.hold();
        let own = self.own.as_ref().filter(|_| !hold.is_empty())?;
        let until = self.clock.wall() + self.settle_within;
        let sealed = SealedHold::new(&hold, until, own.process, is_open);
        match &self.shared.read()[0] {
            // What was decided without Redis is in this process until it is replayed.
            Some(shared) if !decision.is_degraded() => shared.key.seal(&sealed),
            _ => own.key.seal(&sealed),
        }
    }

    /// Settles what was held with this many units, once; with none, all of it is given back.
    pub(crate) async fn settle(
        &self,
        source: &'static str,
        id: &str,
        units: u32,
    ) -> Result<(), SettleError> {
        let opened = self.open(id);
        let settled = match &opened {
            Some(opened) => self.settle_opened(opened, units).await,
            None if self.lacks_shared_key() => Err(SettleError::NoKey),
            None => Err(SettleError::Unknown),
        };
        let outcome = match &settled {
            Ok(()) => SettlementOutcome::Done,
            Err(SettleError::Repeated) => SettlementOutcome::Repeated,
            Err(SettleError::Unknown | SettleError::Elsewhere) => SettlementOutcome::Refused,
            Err(SettleError::NoKey | SettleError::Store(_)) => SettlementOutcome::Failed,
        };
        self.observer.settled(source, outcome, opened.as_ref().map(|opened| &opened.hold), units);
        settled
    }

    async fn settle_opened(&self, opened: &OpenedHold, units: u32) -> Result<(), SettleError> {
        if opened.hold.is_empty() {
            return Err(SettleError::Elsewhere);
        }
        let cost_of = |held: &HeldCharge| match units {
            1.. if opened.keeps_cost(held) => held.units.get(),
            _ => units,
        };
        let rest = opened.until.saturating_since(self.clock.wall());
        let once = Once { id: &opened.name, within: rest + MAX_CLOCK_SKEW };
        match self.observer.gate().settle(&opened.hold, cost_of, Some(once)).await {
            Ok(Settled::Now) => Ok(()),
            Ok(Settled::Before) => Err(SettleError::Repeated),
            Err(error) => Err(SettleError::Store(error)),
        }
    }

    /// Whether another gateway may have made an id that cannot be opened here yet.
    fn lacks_shared_key(&self) -> bool {
        self.observer.gate().store().redis().is_some() && self.shared.read()[0].is_none()
    }

    /// What an id holds, as far as it can be settled here, unless it is not one or has expired.
    fn open(&self, id: &str) -> Option<OpenedHold> {
        let own = self.own.as_ref()?;
        let (name, sealed) = {
            let shared = self.shared.read();
            let mut keys = shared.iter().flatten().map(|shared| &shared.key).chain([&own.key]);
            keys.find_map(|key| key.open(id))?
        };
        let mut opened = OpenedHold::new(name, &sealed)?;
        if sealed.process != own.process {
            opened.hold.retain(|held| matches!(held.spent, SpentIn::Shared(_)));
        }
        Some(opened).filter(|opened| self.clock.wall() < opened.until)
    }
}

impl OwnKey {
    fn random() -> Option<Self> {
        let (mut secret, mut process) = ([0; 32], [0; 8]);
        getrandom::fill(&mut secret).ok()?;
        getrandom::fill(&mut process).ok()?;
        Some(Self { key: IdKey::new(&secret), process: u64::from_ne_bytes(process) })
    }
}

/// What an id carries.
struct OpenedHold {
    /// By which it is settled once.
    name: String,
    hold: Hold,
    /// The charges whose cost was known.
    fixed: Vec<HeldCharge>,
    until: Timestamp,
}

impl OpenedHold {
    fn new(name: String, sealed: &SealedHold) -> Option<Self> {
        let charges: Option<Vec<HeldCharge>> =
            sealed.charges.iter().map(|charge| charge.held()).collect();
        let charges = charges?;
        let are_fixed = charges.iter().zip(&sealed.charges);
        let fixed = are_fixed.filter(|(_, sealed)| sealed.fixed).map(|(held, _)| held.clone());
        Some(Self {
            name,
            fixed: fixed.collect(),
            hold: Hold { charges: charges.into() },
            until: Timestamp::from_millis(sealed.until_ms),
        })
    }

    fn keeps_cost(&self, held: &HeldCharge) -> bool {
        self.fixed.contains(held)
    }
}

impl fmt::Display for SettleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str(
                "there is nothing to settle by this id: it is older than decisions.settle_within \
                 allows, or no gateway on the same Redis and namespace made it, or another process \
                 made it without Redis",
            ),
            Self::Elsewhere => f.write_str(
                "all of it was spent under policies with scope = \"local\": only the gateway that \
                 decided can settle it",
            ),
            Self::Repeated => f.write_str("it was settled before, and nothing is changed"),
            Self::NoKey => f.write_str(
                "the key of the gateways was not read from Redis yet: try again with the same id",
            ),
            Self::Store(error) => write!(
                f,
                "the store failed, and it may not be settled: try again with the same id, which is \
                 settled once however often it is sent: {error}"
            ),
        }
    }
}

impl fmt::Debug for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holds").finish_non_exhaustive()
    }
}
