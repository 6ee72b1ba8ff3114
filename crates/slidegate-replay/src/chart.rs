//! Bar charts and curves as SVG, in the colours of the page or picture that they are in.

use maud::{Markup, PreEscaped, html};

/// A chart under construction: a plot with a scale on the left and labels below.
///
/// It sets no colours. The style sheet around it styles `text`, and the classes `line` and
/// `faint` besides those of the bars.
///
/// ```
/// use slidegate_replay::{Bar, Chart};
///
/// let mut chart = Chart::new(440.0, 210.0);
/// chart.scale("20");
/// for (column, units) in [5, 20, 0].into_iter().enumerate() {
///     let title = &format!("{units} units");
///     let height = f64::from(units) / 20.0;
///     chart.bar(&Bar { column, columns: 3, height, class: "bar", title });
/// }
/// chart.labels(&[["a minute ago", "", "now"]]);
/// let svg = chart.into_svg("25 units in a minute").into_string();
/// assert!(svg.contains("<title>20 units</title>"));
/// ```
#[derive(Debug)]
pub struct Chart {
    width: f64,
    height: f64,
    /// The markup of what is drawn so far.
    elements: String,
}

/// A bar of a [`Chart`].
#[derive(Debug, Clone, Copy)]
pub struct Bar<'a> {
    /// The index of its column, from the left.
    pub column: usize,
    /// The number of columns that share the width.
    pub columns: usize,
    /// The part of the chart's height that it has, from 0 to 1. Nothing is drawn for 0.
    pub height: f64,
    /// Its class in the style sheet.
    pub class: &'a str,
    /// What it stands for, shown while the pointer is on it.
    pub title: &'a str,
}

const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 28.0;
/// From one line of labels to the next.
const LABEL_LINE: f64 = 18.0;
/// A lower bar could not be seen.
const MIN_BAR_HEIGHT: f64 = 1.5;

impl Chart {
    /// A chart of this size in pixels, with its labels.
    pub fn new(width: f64, height: f64) -> Self {
        Self { width, height, elements: String::new() }
    }

    /// Draws lines at nothing and at the most, and labels them.
    pub fn scale(&mut self, most: &str) {
        for (part, text) in [(1.0, most), (0.0, "0")] {
            let (y, right) = (self.y(part), self.width - RIGHT);
            self.path("line", &format!("M{LEFT} {y:.1}H{right}"));
            self.label(LEFT - 8.0, y + 4.0, "end", "faint", text);
        }
    }

    /// Writes lines of labels below the plot, each at the left, in the middle and at the right. There
    /// is room for one line; further ones are below the chart.
    pub fn labels(&mut self, lines: &[[&str; 3]]) {
        for (line, [left, middle, right]) in lines.iter().enumerate() {
            let y = self.floor() + LABEL_LINE * (line + 1) as f64;
            for (part, anchor, text) in
                [(0.0, "start", left), (0.5, "middle", middle), (1.0, "end", right)]
            {
                self.label(self.x(part), y, anchor, "faint", text);
            }
        }
    }

    /// Draws a bar, high enough to be seen unless its height is 0.
    pub fn bar(&mut self, bar: &Bar<'_>) {
        let Bar { column, columns, height, class, title } = *bar;
        if height <= 0.0 {
            return;
        }
        let step = self.plot_width() / columns as f64;
        let gap = if step > 4.0 { 1.0 } else { 0.0 };
        let (x, floor) = (self.x(0.0) + step * column as f64, self.floor());
        let y = floor - (self.plot_height() * height).max(MIN_BAR_HEIGHT);
        let outline = format!("M{x:.2} {floor}V{y:.2}h{:.2}V{floor}z", step - gap);
        self.draw(&html! { path class=(class) d=(outline) { title { (title) } } });
    }

    /// The chart as an element of an HTML page. The text describes it to those who cannot see it.
    pub fn into_svg(self, description: &str) -> Markup {
        let area = format!("0 0 {} {}", self.width, self.height);
        html! { svg viewBox=(area) role="img" aria-label=(description) { (self.into_elements()) } }
    }

    /// What is drawn, for a picture that has more in it. Its upper left corner is at 0, 0.
    pub fn into_elements(self) -> Markup {
        PreEscaped(self.elements)
    }

    /// Writes what the scale counts above its upper end.
    pub(crate) fn unit(&mut self, unit: &str) {
        self.label_above(LEFT, "start", "faint", unit);
    }

    /// Writes text above the plot.
    pub(crate) fn label_above(&mut self, x: f64, anchor: &str, class: &str, text: &str) {
        self.label(x, TOP - 9.0, anchor, class, text);
    }

    pub(crate) fn label(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        let (x, y) = (format!("{x:.1}"), format!("{y:.1}"));
        self.draw(&html! { text x=(x) y=(y) text-anchor=(anchor) class=(class) { (text) } });
    }

    pub(crate) fn path(&mut self, class: &str, line: &str) {
        self.draw(&html! { path class=(class) d=(line) {} });
    }

    pub(crate) fn draw(&mut self, element: &Markup) {
        self.elements += &element.0;
    }

    /// Where a part of the width is, from 0 to 1.
    pub(crate) fn x(&self, part: f64) -> f64 {
        LEFT + self.plot_width() * part
    }

    /// Where a part of the height is, from 0 to 1.
    pub(crate) fn y(&self, part: f64) -> f64 {
        self.floor() - self.plot_height() * part
    }

    /// Where bars stand.
    pub(crate) fn floor(&self) -> f64 {
        self.height - BOTTOM
    }

    fn plot_height(&self) -> f64 {
        self.floor() - TOP
    }

    fn plot_width(&self) -> f64 {
        self.width - LEFT - RIGHT
    }
}
