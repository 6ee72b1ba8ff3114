//! The final table: what each limiter admitted, per customer.

use super::figure::grouped;
use super::replay::{Limiter, Played};
use crate::terminal::{Paint, Tone};

const HEADINGS: &str = "
                                                  worst
  customer limiter        sent admitted  refused   60 s  quota  verdict
";

/// The table, with a row for each customer and limiter.
pub(super) fn draw(paint: Paint, everyone: &[Played]) -> String {
    let title = paint.tone(Tone::Strong, "3. The worst 60 seconds");
    let rule = paint.tone(Tone::Faint, &"─".repeat(78));
    let mut text = format!(
        "
{title}
  Counted afterwards from the list of admitted requests: the most that were
  admitted in any 60 seconds, wherever they begin. Held: never above the quota.
{HEADINGS}  {rule}
"
    );
    for played in everyone {
        text.extend(Limiter::BOTH.map(|limiter| row(paint, played, limiter)));
    }
    text
}

fn row(paint: Paint, played: &Played, limiter: Limiter) -> String {
    let (customer, answers) = (&played.customer, played.answers(limiter));
    let figures = [
        customer.sends.len(),
        answers.admitted.len(),
        answers.refused,
        answers.worst(),
        customer.units(),
    ];
    let [sent, admitted, refused, worst, quota] = figures.map(grouped);
    // The second of two rows does not repeat the name.
    let name = if limiter == Limiter::BOTH[0] { customer.name } else { "" };
    let limiter_name = limiter.name();
    let verdict = verdict(paint, played, limiter);
    format!(
        "  {name:<8} {limiter_name:<12} {sent:>6} {admitted:>8}  {refused:>7}  {worst:>5}  \
         {quota:>5}  {verdict}\n"
    )
}

fn verdict(paint: Paint, played: &Played, limiter: Limiter) -> String {
    if played.is_held(limiter) {
        return paint.tone(Tone::Good, "held");
    }
    let times = played.answers(limiter).worst() as f64 / played.customer.units() as f64;
    paint.tone(Tone::Bad, &format!("EXCEEDED (x{times:.2})"))
}
