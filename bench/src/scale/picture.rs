//! What the fleets did, drawn over the number of gateways.

use std::ops::Range;

use anyhow::anyhow;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;

use super::fleets::{Fleet, Fleets, GATEWAYS, Load, ROUND_TRIPS};

const SIZE: (u32, u32) = (720, 320);
const FONT: (&str, u32) = ("sans-serif", 14);
/// Distinct for those who do not see colours, and on white as on black paper.
const COLOURS: [RGBColor; 3] = [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115)];

/// A line: what it shows, and a value for each of [`GATEWAYS`].
struct Line {
    name: String,
    values: Vec<f64>,
}

/// The pictures, by the names of their files.
pub fn all(fleets: &Fleets) -> anyhow::Result<[(&'static str, String); 2]> {
    let used = ROUND_TRIPS.map(|(round_trip, _)| {
        let shown = |fleet: &&Fleet| fleet.round_trip == round_trip;
        let values = fleets.leased(Load::Hot).filter(shown).map(|fleet| fleet.figures.used);
        Line { name: format!("{round_trip} to Redis"), values: values.collect() }
    });
    let calls = [Load::Steady, Load::Lukewarm, Load::Zipf(1_000_000)].map(|load| {
        let shown = |fleet: &&Fleet| fleet.round_trip == ROUND_TRIPS[1].0;
        let values = fleets.leased(load).filter(shown);
        let values = values.map(|fleet| fleet.figures.calls_per_1000());
        Line { name: load.name().to_owned(), values: values.collect() }
    });
    let used =
        draw("Share of one account's quota that is used, at twice its demand", &used, 0.9..1.0);
    let calls = draw("Calls to Redis for 1,000 decisions, 1 ms away", &calls, 0.0..1100.0);
    Ok([("scale-used.svg", used?), ("scale-calls.svg", calls?)])
}

/// The gateways, at equal distances.
#[derive(Clone)]
struct GatewayAxis;

impl Ranged for GatewayAxis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = usize;

    fn map(&self, value: &usize, limit: (i32, i32)) -> i32 {
        let part = (*value as f64 + 0.3) / (GATEWAYS.len() as f64 - 0.4);
        limit.0 + (f64::from(limit.1 - limit.0) * part) as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<usize> {
        (0..GATEWAYS.len()).collect()
    }

    fn range(&self) -> Range<usize> {
        0..GATEWAYS.len() - 1
    }
}

impl ValueFormatter<usize> for GatewayAxis {
    fn format_ext(&self, place: &usize) -> String {
        GATEWAYS[*place].to_string()
    }
}

fn draw(title: &str, lines: &[Line], values: Range<f64>) -> anyhow::Result<String> {
    let mut text = String::new();
    // The error of a backend lives no longer than the backend.
    draw_into(&mut text, title, lines, values).map_err(|error| anyhow!(error.to_string()))?;
    Ok(text)
}

fn draw_into(
    text: &mut String,
    title: &str,
    lines: &[Line],
    values: Range<f64>,
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, (FONT.0, 16))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(48)
        .build_cartesian_2d(GatewayAxis, values)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("gateways")
        .label_style(FONT)
        .axis_desc_style(FONT)
        .draw()?;
    for (line, colour) in lines.iter().zip(COLOURS) {
        let points = || line.values.iter().copied().enumerate();
        chart
            .draw_series(LineSeries::new(points(), colour.stroke_width(2)))?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.2))
        .label_font(FONT)
        .draw()?;
    area.present()?;
    Ok(())
}
