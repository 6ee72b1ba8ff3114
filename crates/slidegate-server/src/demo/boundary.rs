//! Scene 1: a burst around the minute boundary.

use std::time::Duration;

use anyhow::Context;

use super::panel::Panel;
use super::picture::{GUTTER, strip};
use super::replay::{Limiter, Played};
use super::timeline::Timeline;
use crate::terminal::{Paint, Tone};

const TIMELINE: Timeline =
    Timeline { start: Duration::from_secs(50), slot: Duration::from_secs(2), slots: 40 };

/// The scene's text, its traffic, and a panel for each limiter.
pub(super) fn draw(paint: Paint, everyone: &[Played]) -> anyhow::Result<String> {
    let played = everyone.first().context("nobody played")?;
    let panel = |limiter, notes: &[String]| {
        Panel { played, limiter, timeline: TIMELINE, notes }.draw(paint)
    };
    let mut text = introduction(paint, played);
    text += &panel(Limiter::FixedWindow, &fixed_window_notes(played));
    text += &panel(Limiter::Slidegate, &slidegate_notes(played)?);
    Ok(text)
}

fn introduction(paint: Paint, played: &Played) -> String {
    let title = paint.tone(Tone::Strong, "1. A burst around the minute");
    let quota = played.customer.plan.per_minute;
    let ruler = TIMELINE.ruler();
    let sent = TIMELINE.per_slot(&played.customer.sends);
    format!(
        "
{title}
  A customer with a quota of {quota} sends 100 requests in the second before
  1:00, 100 in the second after it, and 100 more at 1:59. A column is 2 seconds.

{:GUTTER$}{ruler}
{}",
        "",
        strip("sent", &sent, played.customer.units()),
    )
}

fn fixed_window_notes(played: &Played) -> [String; 3] {
    let worst = played.answers(Limiter::FixedWindow).worst();
    [
        "At 1:00 the count starts".into(),
        format!("again: {worst} in two seconds."),
        quota_note(played),
    ]
}

fn slidegate_notes(played: &Played) -> anyhow::Result<[String; 5]> {
    let wait =
        played.answers(Limiter::Slidegate).first_wait.context("Slidegate refused nothing")?;
    Ok([
        "Refused at 1:00, and told to".into(),
        format!("come back in {} s.", wait.as_secs_f64()),
        quota_note(played),
        "At 1:59 it does, and the".into(),
        "units are free again.".into(),
    ])
}

/// Stands beside the chart's dashed line.
fn quota_note(played: &Played) -> String {
    format!("quota {}", played.customer.plan.per_minute)
}
