//! The id of a hold: what was held, encrypted and authenticated, as text.

use std::num::NonZeroU32;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use prost::Message;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use slidegate::limit::Quotas;
use slidegate::{HeldCharge, Hold, Quota, SpentIn, Timestamp};

/// A key that seals ids. Every process that has it can make and open them.
pub(super) struct IdKey(Prk);

/// Random bytes that an id begins with. Each id is sealed with a key derived from them, because the
/// twelve bytes of a nonce are too few to draw them at random as often as a busy service does.
const SALT_BYTES: usize = 16;

/// What keys are derived for.
const CONTEXT: &[u8] = b"slidegate hold 1";

impl IdKey {
    pub(super) fn new(secret: &[u8]) -> Self {
        Self(Salt::new(HKDF_SHA256, CONTEXT).extract(secret))
    }

    /// The id of a hold, unless the system has no random numbers.
    pub(super) fn seal(&self, hold: &SealedHold) -> Option<String> {
        let mut salt = [0; SALT_BYTES];
        getrandom::fill(&mut salt).ok()?;
        let mut text = hold.encode_to_vec();
        self.key_of(&salt).seal_in_place_append_tag(nonce(), Aad::empty(), &mut text).ok()?;
        Some(BASE64_URL_SAFE_NO_PAD.encode([&salt[..], &text].concat()))
    }

    /// What an id was made of, and its name, unless it was sealed by another key.
    pub(super) fn open(&self, id: &str) -> Option<(String, SealedHold)> {
        let mut bytes = BASE64_URL_SAFE_NO_PAD.decode(id).ok()?;
        let (salt, text) = bytes.split_first_chunk_mut::<SALT_BYTES>()?;
        let text = self.key_of(salt).open_in_place(nonce(), Aad::empty(), text).ok()?;
        let hold = SealedHold::decode(&*text).ok()?;
        Some((BASE64_URL_SAFE_NO_PAD.encode(salt), hold))
    }

    /// The key of the id with this salt.
    fn key_of(&self, salt: &[u8; SALT_BYTES]) -> LessSafeKey {
        let info: [&[u8]; 1] = [salt];
        let key = self.0.expand(&info, &CHACHA20_POLY1305).expect("shorter than HKDF allows");
        LessSafeKey::new(UnboundKey::from(key))
    }
}

/// Each key seals once.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

/// A hold, as it is sealed. Gateways of several versions may read it, so numbers of fields are not used
/// anew.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SealedHold {
    /// Until when it can be settled, by the calendar.
    #[prost(uint64, tag = "1")]
    pub(super) until_ms: u64,
    /// The process that decided.
    #[prost(fixed64, tag = "2")]
    pub(super) process: u64,
    #[prost(message, repeated, tag = "3")]
    pub(super) charges: Vec<SealedCharge>,
}

/// A charge of a hold.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SealedCharge {
    #[prost(string, tag = "1")]
    policy: String,
    #[prost(string, tag = "2")]
    identity: String,
    #[prost(message, repeated, tag = "3")]
    quotas: Vec<SealedQuota>,
    #[prost(uint32, tag = "4")]
    units: u32,
    /// Whether it was spent in the process that decided.
    #[prost(bool, tag = "5")]
    local: bool,
    #[prost(fixed64, tag = "6")]
    at_ns: u64,
    /// Whether its cost was known.
    #[prost(bool, tag = "7")]
    pub(super) fixed: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct SealedQuota {
    #[prost(uint32, tag = "1")]
    units: u32,
    #[prost(uint64, tag = "2")]
    window_ms: u64,
}

impl SealedHold {
    pub(super) fn new(
        hold: &Hold,
        until: Timestamp,
        process: u64,
        is_open: impl Fn(&HeldCharge) -> bool,
    ) -> Self {
        let charges = hold.charges.iter().map(|held| SealedCharge::new(held, !is_open(held)));
        Self { until_ms: until.as_millis(), process, charges: charges.collect() }
    }
}

impl SealedCharge {
    fn new(held: &HeldCharge, fixed: bool) -> Self {
        let (local, at) = match held.spent {
            SpentIn::Local(at) => (true, at),
            SpentIn::Shared(at) => (false, at),
        };
        let quota = |quota: &Quota| SealedQuota {
            units: quota.units().get(),
            window_ms: quota.window().as_millis() as u64,
        };
        Self {
            policy: held.policy.to_string(),
            identity: held.identity.to_string(),
            quotas: held.quotas.as_slice().iter().map(quota).collect(),
            units: held.units.get(),
            local,
            at_ns: at.as_nanos(),
            fixed,
        }
    }

    /// None if another version of Slidegate knows charges that this one does not.
    pub(super) fn held(&self) -> Option<HeldCharge> {
        let at = Timestamp::from_nanos(self.at_ns);
        let quota = |quota: &SealedQuota| {
            let window = Duration::from_millis(quota.window_ms);
            Quota::new(NonZeroU32::new(quota.units)?, window).ok()
        };
        let quotas: Option<Vec<Quota>> = self.quotas.iter().map(quota).collect();
        Some(HeldCharge {
            policy: self.policy.parse().ok()?,
            identity: self.identity.parse().ok()?,
            quotas: Quotas::new(quotas?).ok()?,
            // Programs name policies, which have their quotas.
            caller_quotas: false,
            units: NonZeroU32::new(self.units)?,
            spent: if self.local { SpentIn::Local(at) } else { SpentIn::Shared(at) },
            response: None,
        })
    }
}
