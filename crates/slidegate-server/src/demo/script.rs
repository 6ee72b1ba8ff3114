//! Scene 2: a script of 50,000 requests beside customers who keep to their plans.

use std::time::Duration;

use anyhow::Context;

use super::figure::grouped;
use super::panel::Panel;
use super::picture::{GUTTER, bars, strip};
use super::replay::{Limiter, Played};
use super::timeline::Timeline;
use crate::terminal::{Paint, Tone};

const TIMELINE: Timeline =
    Timeline { start: Duration::ZERO, slot: Duration::from_secs(10), slots: 60 };

/// Slots of the timeline in a minute.
const SLOTS_PER_MINUTE: usize = 6;

/// The scene's text, the script's traffic with a panel for each limiter, and its neighbours.
pub(super) fn draw(paint: Paint, everyone: &[Played]) -> anyhow::Result<String> {
    let (script, neighbours) = everyone.split_first().context("nobody played")?;
    let mut text = introduction(paint, script);
    for limiter in Limiter::BOTH {
        text += &Panel { played: script, limiter, timeline: TIMELINE, notes: &[] }.draw(paint);
    }
    text += &meanwhile(neighbours);
    text.extend(neighbours.iter().map(|played| neighbour(paint, played)));
    Ok(text)
}

fn introduction(paint: Paint, script: &Played) -> String {
    let title = paint.tone(Tone::Strong, "2. The 50,000-request script");
    let quota = script.customer.plan.per_minute;
    let ruler = TIMELINE.ruler();
    let sent = TIMELINE.per_slot(&script.customer.sends);
    let most = sent.iter().copied().max().unwrap_or(1);
    format!(
        "
{title}
  A script on the pro plan (quota {quota}) sends 50,000 requests in ten minutes:
  gently, then hard across 1:00, 3:00, 5:00 and so on. A column is 10 seconds.

{:GUTTER$}{ruler}
{}",
        "",
        strip("sent", &sent, most),
    )
}

fn meanwhile(neighbours: &[Played]) -> String {
    let describe = |Played { customer, .. }: &Played| {
        format!("{} ({}, {})", customer.name, customer.plan.name, customer.plan.per_minute)
    };
    let names: Vec<String> = neighbours.iter().map(describe).collect();
    format!(
        "
  Meanwhile, customers who keep to their plans:
  {}.
  A full block would be the plan's quota, spread evenly. On the right, how many
  of their requests both limiters admitted.

",
        names.join(", ")
    )
}

/// A customer's requests in one row, and whether both limiters admitted all of them.
fn neighbour(paint: Paint, played: &Played) -> String {
    let customer = &played.customer;
    let even_share = customer.units() / SLOTS_PER_MINUTE;
    let admitted = &played.answers(Limiter::Slidegate).admitted;
    let bars = bars(&TIMELINE.per_slot(admitted), even_share);
    let refused = Limiter::BOTH.map(|limiter| played.answers(limiter).refused);
    let note = match refused[0].max(refused[1]) {
        0 => paint.tone(Tone::Good, &format!("all {}", grouped(customer.sends.len()))),
        refused => paint.tone(Tone::Bad, &format!("all but {}", grouped(refused))),
    };
    format!("{:>width$} {bars} {note}\n", customer.name, width = GUTTER - 1)
}
