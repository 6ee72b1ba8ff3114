//! What one limiter did, drawn: a chart of the past 60 seconds over what each slot admitted.

use super::figure::grouped;
use super::picture::{Chart, strip};
use super::replay::{Limiter, Played};
use super::timeline::Timeline;
use crate::terminal::{Paint, Tone};

/// One limiter's answers to one customer.
#[derive(Debug)]
pub(super) struct Panel<'a> {
    pub(super) played: &'a Played,
    pub(super) limiter: Limiter,
    pub(super) timeline: Timeline,
    /// Stand beside the chart's lines, from the top.
    pub(super) notes: &'a [String],
}

impl Panel<'_> {
    /// The panel as lines of text, with an empty one above.
    pub(super) fn draw(&self, paint: Paint) -> String {
        let units = self.played.customer.units();
        let admitted = &self.played.answers(self.limiter).admitted;
        let past_minute = self.timeline.past_minute(admitted);
        let chart = Chart { timeline: self.timeline, values: &past_minute, units };
        let notes = self.notes.iter().map(String::as_str).chain(std::iter::repeat(""));
        let mut text = self.heading(paint);
        for (line, note) in chart.lines(paint).into_iter().zip(notes) {
            text += format!("{line}  {note}").trim_end();
            text.push('\n');
        }
        text + &strip("admitted", &self.timeline.per_slot(admitted), units)
    }

    fn heading(&self, paint: Paint) -> String {
        let name = paint.tone(Tone::Strong, self.limiter.name());
        let tone = if self.played.is_held(self.limiter) { Tone::Good } else { Tone::Bad };
        let worst = paint.tone(tone, &grouped(self.played.answers(self.limiter).worst()));
        let units = grouped(self.played.customer.units());
        format!("\n  {name}: {worst} units in the worst 60 seconds, the quota is {units}\n")
    }
}
