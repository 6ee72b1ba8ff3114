//! What an operator orders about an identity, for a time.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::ops::Range;

use foldhash::fast::RandomState;
use http::Method;

use crate::limit::clock::Timestamp;
use crate::limit::name::Name;
use crate::policy::facts::Facts;
use crate::policy::identity::Identity;
use crate::policy::matching::CheckedPolicy;
use crate::policy::source::Source;

/// What an operator orders for an identity, until a time on the gate's clock
/// ([`Gate::now`](crate::Gate::now)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Whom it is about, as policies count it and decisions show it.
    pub identity: Identity,
    /// The policy that it is for; none for all of them.
    pub policy: Option<Name>,
    /// What is ordered.
    pub measure: Measure,
    /// When it ends: at this instant it does nothing any more.
    pub until: Timestamp,
}

/// What is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// The policy passes the identity's requests over; without a policy, no policy is for them.
    Exempt,
    /// The identity's requests are refused, with nothing spent. A shadow policy refuses nobody.
    Ban,
    /// Every quota of the account has this many units more. Several grants add up.
    Grant(NonZeroU32),
}

/// Orders of an operator, for [`Gate::replace_orders`](crate::Gate::replace_orders).
///
/// An order holds wherever a policy counts a request for its identity. A ban or an exemption
/// without a policy holds for every request that has the identity, whichever of its identities
/// policies count it by, and also if no policy is for it: as with a [`AccessList`](crate::AccessList), a
/// ban on any reading of a header that is sent twice, an exemption only if there is no doubt. Of
/// `anonymous` and of `header:~…`, whose text does not tell where they are read, it holds only
/// where a policy counts by them. An address or a network is meant as it is written: a ban on
/// `ip:203.0.113.0/24` is for all of it, and `ip:2001:db8::1` is for one address, even if policies
/// count by /64. What is no [`Network`](crate::policy::Network) after its `ip:` is nobody's. `everyone` is
/// every request.
///
/// The policies' own list of the blocked outweighs all orders, then come their own exemptions, then
/// ordered bans, then ordered exemptions.
///
/// ```
/// use std::num::NonZeroU32;
/// use std::time::Duration;
///
/// use slidegate::policy::{Measure, Order, Orders};
/// use slidegate::{Facts, Gate, Identity, MemoryStore, Policies, Policy, Quota};
///
/// let policies = Policies::builder().policy(Policy::new("api").quota(Quota::per_minute(2)));
/// let gate = Gate::new(policies.build()?, MemoryStore::new());
///
/// let ten_more = Order {
///     identity: "ip:203.0.113.7".parse()?,
///     policy: Some("api".parse()?),
///     measure: Measure::Grant(NonZeroU32::new(10).expect("ten")),
///     until: gate.now() + Duration::from_secs(600),
/// };
/// let out = Order {
///     identity: Identity::user("mallory"),
///     policy: None,
///     measure: Measure::Ban,
///     until: gate.now() + Duration::from_secs(3600),
/// };
/// gate.replace_orders(Orders::new([ten_more, out])?);
///
/// let facts = Facts::new(&http::Method::GET, "/").client("203.0.113.7".parse()?);
/// let decision = gate.decide_now(&facts)?;
/// assert_eq!(decision.policies()[0].standings()[0].quota(), Quota::per_minute(12));
/// assert!(!gate.decide_now(&facts.user("mallory"))?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Orders {
    /// Those of one identity beside each other.
    list: Box<[Order]>,
    by_identity: HashMap<Identity, Range<usize>, RandomState>,
    /// Where the identities are read that are banned or exempt without a policy.
    sources: Vec<Source>,
}

impl Orders {
    /// How many there can be at a time.
    pub const MAX: usize = 10_000;

    /// Orders to put in force, at most [`Orders::MAX`].
    pub fn new(orders: impl IntoIterator<Item = Order>) -> Result<Self, TooManyOrders> {
        let mut list: Vec<Order> = orders.into_iter().take(Self::MAX + 1).collect();
        if list.len() > Self::MAX {
            return Err(TooManyOrders);
        }
        list.sort_by_cached_key(|order| order.identity.canonical());
        let mut orders = Self { list: list.into(), ..Self::default() };
        for (i, order) in orders.list.iter().enumerate() {
            let identity = order.identity.canonical();
            orders.by_identity.entry(identity).or_insert(i..i).end = i + 1;
            if let Some(source) = order.source_everywhere()
                && !orders.sources.contains(&source)
            {
                orders.sources.push(source);
            }
        }
        Ok(orders)
    }

    /// All orders, those of one identity one after another.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Order> {
        self.list.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The orders as of an instant.
    pub(crate) fn at(&self, now: Timestamp) -> OrdersAt<'_> {
        OrdersAt { orders: self, now }
    }
}

impl Order {
    /// Where to look for the identity in requests that policies count by another.
    fn source_everywhere(&self) -> Option<Source> {
        let everywhere = self.policy.is_none() && !matches!(self.measure, Measure::Grant(_));
        if everywhere { Source::of(&self.identity) } else { None }
    }
}

/// More orders than there can be at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many orders: expected at most {}", Orders::MAX)]
pub struct TooManyOrders;

/// Orders as of an instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OrdersAt<'o> {
    orders: &'o Orders,
    pub(crate) now: Timestamp,
}

/// What several orders come to: of each measure, what lasts longest or all of it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ordered {
    pub(crate) banned_until: Option<Timestamp>,
    pub(crate) exempt_until: Option<Timestamp>,
    pub(crate) granted: u32,
}

impl OrdersAt<'_> {
    /// What is ordered of an identity under one policy alone.
    pub(crate) fn under(self, policy: &CheckedPolicy, identity: &Identity) -> Ordered {
        let ordered = self.sum(identity, |order| order.policy.as_ref() == Some(&policy.name));
        // A policy that only watches bans nobody.
        Ordered { banned_until: ordered.banned_until.filter(|_| !policy.shadow), ..ordered }
    }

    /// What is ordered of an identity under all policies.
    pub(crate) fn everywhere(self, identity: &Identity) -> Ordered {
        self.sum(identity, |order| order.policy.is_none())
    }

    /// What is ordered of a request under all policies, whatever they count it by. Grants are not
    /// looked for: only an account can have more units.
    pub(crate) fn of_request(self, facts: &Facts<'_>) -> Ordered {
        let mut ordered = Ordered::default();
        for source in &self.orders.sources {
            source.find_listed(facts, |identity| {
                let found = self.everywhere(identity).banned_until;
                ordered.banned_until = ordered.banned_until.max(found);
                false
            });
            if let Some(identity) = source.read(facts) {
                let found = self.everywhere(&identity).exempt_until;
                ordered.exempt_until = ordered.exempt_until.max(found);
            }
        }
        ordered
    }

    /// What is ordered under all policies of an address whose network has orders, and of everyone,
    /// if the identity is named and there is no request to find more in.
    pub(crate) fn around(self, identity: &Identity) -> Ordered {
        let facts = Facts::new(&Method::GET, "");
        let address = identity.network().filter(|(address, cut)| cut.network(*address).1.is_none());
        self.of_request(&address.map_or(facts, |(address, _)| facts.client(address)))
    }

    fn sum(self, identity: &Identity, is_meant: impl Fn(&Order) -> bool) -> Ordered {
        let mut ordered = Ordered::default();
        let Some(range) = self.orders.by_identity.get(identity) else { return ordered };
        let in_force = |order: &&Order| order.until > self.now && is_meant(order);
        for order in self.orders.list[range.clone()].iter().filter(in_force) {
            ordered.add(order);
        }
        ordered
    }
}

impl Ordered {
    /// What both come to.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            banned_until: self.banned_until.max(other.banned_until),
            exempt_until: self.exempt_until.max(other.exempt_until),
            granted: self.granted.saturating_add(other.granted),
        }
    }

    fn add(&mut self, order: &Order) {
        let until = Some(order.until);
        match order.measure {
            Measure::Exempt => self.exempt_until = self.exempt_until.max(until),
            Measure::Ban => self.banned_until = self.banned_until.max(until),
            Measure::Grant(units) => self.granted = self.granted.saturating_add(units.get()),
        }
    }
}
