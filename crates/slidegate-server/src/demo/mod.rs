//! `slidegate demo`: the same traffic through a fixed-window counter and through Slidegate, in
//! virtual time.

mod boundary;
mod figure;
mod fixed_window;
mod panel;
mod picture;
mod replay;
mod script;
mod table;
mod timeline;
mod traffic;
mod worst;

use std::time::Duration;

use anyhow::{Context, ensure};

use self::figure::grouped;
use self::replay::{Limiter, Played};
use crate::terminal::{self, Paint, Tone};

/// What the story is about: every quota that it compares is per minute.
const MINUTE: Duration = Duration::from_secs(60);

/// Plays the story, shows it, and fails if Slidegate admitted more than a quota allows.
pub(crate) fn run() -> anyhow::Result<()> {
    let burster = replay::play([traffic::burster()])?;
    let script = replay::play(traffic::script_and_neighbours())?;

    let paint = Paint::for_stdout();
    let mut page = introduction(paint);
    page += &boundary::draw(paint, &burster)?;
    page += &script::draw(paint, &script)?;
    let everyone: Vec<Played> = burster.into_iter().chain(script).collect();
    page += &table::draw(paint, &everyone);
    page += &closing(paint, &everyone);
    terminal::show(&page).context("cannot write to standard output")?;
    check(&everyone)
}

fn introduction(paint: Paint) -> String {
    let title = paint.tone(Tone::Strong, "Slidegate demo");
    format!(
        "{title}: the same requests through two limiters, in virtual time.

  Fixed window  counts each clock minute, and starts again from 0 on the minute.
  Slidegate     counts the last 60 seconds, at every moment.

  Each request costs one unit. A quota of 100/min should mean that no 60 seconds
  ever see more than 100 units. The charts show how many were admitted in the
  past 60 seconds. The dashed line is the quota: no bar should rise above it.
  The single rows show what was sent and what was admitted in each column.
"
    )
}

fn closing(paint: Paint, everyone: &[Played]) -> String {
    let broken = Limiter::BOTH
        .map(|limiter| everyone.iter().filter(|played| !played.is_held(limiter)).count());
    let admitted = Limiter::BOTH.map(|limiter| {
        grouped(everyone.iter().map(|played| played.answers(limiter).admitted.len()).sum())
    });
    let next = paint.tone(Tone::Strong, "What next?");
    format!(
        "
  Of {} quotas the fixed window broke {}, Slidegate {}.
  Requests admitted in all: {} by the fixed window, {} by Slidegate.

{next} README.md shows the same gate in your own code, in a dozen lines.
./scripts/test runs the proof: every promise, against a brute-force model.
",
        everyone.len(),
        broken[0],
        broken[1],
        admitted[0],
        admitted[1],
    )
}

/// The demo's word is checked, not assumed.
fn check(everyone: &[Played]) -> anyhow::Result<()> {
    for played in everyone {
        let (name, quota) = (played.customer.name, played.customer.plan.per_minute);
        let worst = played.answers(Limiter::Slidegate).worst();
        ensure!(
            played.is_held(Limiter::Slidegate),
            "Slidegate admitted {worst} units of {name} in 60 seconds; the quota is {quota}"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::replay::Answers;
    use super::*;

    #[test]
    fn one_unit_too_many_from_slidegate_is_a_failure() {
        let check_with = |units| {
            let slidegate = Answers { admitted: vec![MINUTE; units], ..Answers::default() };
            let fixed_window = Answers::default();
            check(&[Played { customer: traffic::burster(), fixed_window, slidegate }])
        };
        assert!(check_with(100).is_ok());
        let error = check_with(101).unwrap_err().to_string();
        assert_eq!(
            error,
            "Slidegate admitted 101 units of burster in 60 seconds; the quota is 100/min"
        );
    }
}
