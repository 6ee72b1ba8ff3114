//! A number of calls to one candidate in this process, for `scripts/instructions` to count.

use std::net::Ipv4Addr;

use clap::ValueEnum;
use slidegate::{Facts, Gate, MemoryStore, Policies, Policy, Quota};

use crate::memory::candidates::{self, Candidate};
use crate::{customers, tower};

/// What to call, and how often.
#[derive(clap::Args)]
pub struct Options {
    candidate: Called,
    calls: u32,
}

/// What is called. All calls are allowed.
#[derive(Clone, Copy, ValueEnum)]
enum Called {
    /// `slidegate::Limiter::check`.
    Limiter,
    /// `slidegate::MemoryStore::spend_now`.
    Store,
    /// `slidegate::Gate::decide_now` with one policy per address.
    Gate,
    /// governor's keyed limiter.
    Governor,
    /// `slidegate_customers::Customers::find_now` of a token that was verified before.
    Token,
    /// An axum router.
    Bare,
    /// The same behind `RateLimitLayer`.
    Layer,
    /// The same behind tower_governor, with its headers.
    TowerGovernor,
}

/// How many clients take turns.
const CLIENTS: u32 = 1000;

/// Makes the calls.
pub fn run(Options { candidate, calls }: &Options) -> anyhow::Result<()> {
    match candidate {
        Called::Limiter => call::<candidates::Limiter>(*calls),
        Called::Store => call::<candidates::Store>(*calls),
        Called::Governor => call::<candidates::Governor>(*calls),
        Called::Gate => call_gate(*calls)?,
        Called::Token => customers::call_token(*calls)?,
        Called::Bare => tower::call(tower::Service::Bare, *calls),
        Called::Layer => tower::call(tower::Service::Slidegate, *calls),
        Called::TowerGovernor => tower::call(tower::Service::Governor, *calls),
    }
    Ok(())
}

fn address(client: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 + client)
}

/// Calls for clients in turn, all of which have called before. Callgrind collects what happens in here,
/// by the function's name, and not how a limiter starts.
#[inline(never)]
pub fn repeat(calls: u32, mut call: impl FnMut(u32)) {
    for nth in 0..calls {
        call(nth % CLIENTS);
    }
}

fn call<C: Candidate>(calls: u32) {
    let keys: Vec<C::Key> = (0..CLIENTS).map(|n| address(n).to_string().into()).collect();
    let candidate = C::new();
    let decide = |client: u32| assert!(candidate.decide(&keys[client as usize]));
    (0..CLIENTS).for_each(decide);
    repeat(calls, decide);
}

fn call_gate(calls: u32) -> anyhow::Result<()> {
    let policy = Policy::new("api").quota(Quota::per_minute(candidates::UNITS));
    let gate = Gate::new(Policies::builder().policy(policy).build()?, MemoryStore::new());
    let decide = |client: u32| {
        let facts = Facts::new(&http::Method::GET, "/").client(address(client).into());
        assert!(gate.decide_now(&facts).is_ok_and(|decision| decision.is_allowed()));
    };
    (0..CLIENTS).for_each(decide);
    repeat(calls, decide);
    Ok(())
}
