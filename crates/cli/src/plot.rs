//! Memory over time as an SVG picture: step lines, bytes upwards, events to the right.
//!
//! Written by hand, since it is two paths and two axes. The picture has a light background of its
//! own, needs no script and no font that a browser lacks, and its size does not depend on the length
//! of the history: each line has at most four points for a column of pixels.

use std::fmt::Write as _;

use vramwise_types::{GIB, KIB, MIB};

use crate::text::grouped;

const WIDTH: u64 = 960;
const HEIGHT: u64 = 420;
const LEFT: u64 = 72;
const RIGHT: u64 = 20;
const TOP: u64 = 76;
const BOTTOM: u64 = 48;
const INNER_WIDTH: u64 = WIDTH - LEFT - RIGHT;
const INNER_HEIGHT: u64 = HEIGHT - TOP - BOTTOM;

/// Blue, vermilion, green, purple: told apart by people who see few colours, too.
const COLOURS: [&str; 4] = ["#0072b2", "#d55e00", "#009e73", "#aa4499"];

/// One line of the picture.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Its name in the legend.
    pub(crate) label: String,
    /// (event, bytes), ascending by event; the bytes hold until the next point.
    pub(crate) points: Vec<(u64, u64)>,
}

/// The picture.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    /// Heading.
    pub(crate) title: String,
    /// What the horizontal axis counts.
    pub(crate) x_label: String,
    /// The lines, the most important last, so that it is on top.
    pub(crate) lines: Vec<Line>,
    /// A horizontal line with its name, such as the capacity.
    pub(crate) limit: Option<(String, u64)>,
}

impl Plot {
    /// The picture as an SVG document.
    pub(crate) fn to_svg(&self) -> String {
        let points = self.lines.iter().flat_map(|line| &line.points);
        let last = points.clone().map(|point| point.0).max().unwrap_or(0).max(1);
        let highest = points.map(|point| point.1).chain(self.limit.iter().map(|l| l.1)).max();
        let axis = Axis::covering(highest.unwrap_or(0));
        let mut svg = String::new();
        self.head(&mut svg);
        self.axes(&mut svg, &axis, last);
        for (line, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            let path = path(&line.points, last, axis.top());
            let _ = writeln!(
                svg,
                r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>"#
            );
        }
        if let Some((name, bytes)) = &self.limit {
            let y = y(*bytes as f64, axis.top());
            let _ = writeln!(
                svg,
                r##"<path d="M{LEFT} {y}H{}" stroke="#a00" stroke-dasharray="6 4"/><text x="{}" y="{}" fill="#a00" text-anchor="end">{}</text>"##,
                WIDTH - RIGHT,
                WIDTH - RIGHT,
                y - 5.0,
                escape(name)
            );
        }
        self.legend(&mut svg);
        svg.push_str("</svg>\n");
        svg
    }

    fn head(&self, svg: &mut String) {
        let title = escape(&self.title);
        let _ = write!(
            svg,
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" font-family="system-ui, sans-serif" font-size="12" fill="#333">
<title>{title}</title>
<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>
<text x="{LEFT}" y="28" font-size="16" font-weight="600">{title}</text>
"##
        );
    }

    fn axes(&self, svg: &mut String, axis: &Axis, last: u64) {
        for tick in 0..=axis.ticks {
            let y = y(axis.bytes(tick), axis.top());
            let _ = writeln!(
                svg,
                r##"<path d="M{LEFT} {y}H{}" stroke="#ddd"/><text x="{}" y="{}" text-anchor="end">{}</text>"##,
                WIDTH - RIGHT,
                LEFT - 8,
                y + 4.0,
                axis.label(tick)
            );
        }
        let bottom = HEIGHT - BOTTOM;
        let step = round_step(last, 6);
        for tick in 0..=last / step {
            let event = tick * step;
            let x = x(event, last);
            let _ = writeln!(
                svg,
                r##"<path d="M{x} {bottom}v5" stroke="#333"/><text x="{x}" y="{}" text-anchor="middle">{}</text>"##,
                bottom + 18,
                grouped(event)
            );
        }
        let _ = writeln!(
            svg,
            r##"<path d="M{LEFT} {bottom}H{}" stroke="#333"/><text x="{}" y="{}" text-anchor="middle">{}</text><text x="{LEFT}" y="{}" text-anchor="end">{}</text>"##,
            WIDTH - RIGHT,
            LEFT + INNER_WIDTH / 2,
            HEIGHT - 10,
            escape(&self.x_label),
            TOP - 12,
            axis.unit_name
        );
    }

    fn legend(&self, svg: &mut String) {
        let mut x = LEFT;
        for (line, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            let _ = writeln!(
                svg,
                r#"<path d="M{x} 47h22" stroke="{colour}" stroke-width="3"/><text x="{}" y="51">{}</text>"#,
                x + 28,
                escape(&line.label)
            );
            // About seven pixels a character at this size; exact enough to keep the names apart.
            x += 52 + 7 * line.label.chars().count() as u64;
        }
    }
}

/// The vertical axis: ticks at round numbers of a unit. Steps are tenths of the unit, so that labels
/// need one decimal.
struct Axis {
    step_tenths: u64,
    ticks: u64,
    unit: u64,
    unit_name: &'static str,
}

impl Axis {
    fn covering(bytes: u64) -> Self {
        // GiB as soon as half a one is reached: that is how people think of a card.
        let (unit, unit_name) = match bytes {
            n if n >= GIB / 2 => (GIB, "GiB"),
            n if n >= MIB => (MIB, "MiB"),
            _ => (KIB, "KiB"),
        };
        let tenths = (u128::from(bytes) * 10).div_ceil(u128::from(unit)).max(1);
        let tenths = u64::try_from(tenths).unwrap_or(u64::MAX);
        let step_tenths = round_step(tenths, 5);
        Self { step_tenths, ticks: tenths.div_ceil(step_tenths), unit, unit_name }
    }

    /// The bytes at a tick.
    fn bytes(&self, tick: u64) -> f64 {
        (tick * self.step_tenths) as f64 * self.unit as f64 / 10.0
    }

    /// The bytes at the upper end.
    fn top(&self) -> f64 {
        self.bytes(self.ticks)
    }

    fn label(&self, tick: u64) -> String {
        let tenths = tick * self.step_tenths;
        match tenths % 10 {
            0 => grouped(tenths / 10),
            tenth => format!("{}.{tenth}", grouped(tenths / 10)),
        }
    }
}

/// 1, 2 or 5 times a power of ten, so that about `wanted` steps cover `span`.
fn round_step(span: u64, wanted: u64) -> u64 {
    let least = span.div_ceil(wanted).max(1);
    let mut power = 1_u64;
    loop {
        for factor in [1, 2, 5] {
            let step = power.saturating_mul(factor);
            if step >= least {
                return step;
            }
        }
        power = power.saturating_mul(10);
    }
}

fn x(event: u64, last: u64) -> f64 {
    tenths(LEFT as f64 + event as f64 / last as f64 * INNER_WIDTH as f64)
}

fn y(bytes: f64, top: f64) -> f64 {
    tenths((TOP + INNER_HEIGHT) as f64 - bytes / top * INNER_HEIGHT as f64)
}

/// Rounded to a tenth of a pixel, which keeps the file small.
fn tenths(pixels: f64) -> f64 {
    (pixels * 10.0).round() / 10.0
}

/// A step line through `points`, thinned to what the pixels can show.
fn path(points: &[(u64, u64)], last: u64, top: f64) -> String {
    let mut path = String::new();
    let mut drawn: Option<(f64, f64)> = None;
    let mut step = |path: &mut String, event: u64, bytes: u64| {
        let (x, y) = (x(event, last), y(bytes as f64, top));
        match drawn {
            None => {
                let _ = write!(path, "M{x} {y}");
            }
            Some((_, old)) if old == y => return,
            Some((old_x, _)) if old_x == x => {
                let _ = write!(path, "V{y}");
            }
            Some(_) => {
                let _ = write!(path, "H{x}V{y}");
            }
        }
        drawn = Some((x, y));
    };
    for column in columns(points, last) {
        // First, lowest, highest and last in their order show all that a column of pixels can.
        let lowest = column.iter().min_by_key(|p| p.1).copied();
        let highest = column.iter().max_by_key(|p| p.1).copied();
        let mut shown: Vec<_> = [column.first().copied(), lowest, highest, column.last().copied()]
            .into_iter()
            .flatten()
            .collect();
        shown.sort_by_key(|p| p.0);
        for (event, bytes) in shown {
            step(&mut path, event, bytes);
        }
    }
    if !path.is_empty() {
        let _ = write!(path, "H{}", x(last, last));
    }
    path
}

/// The points that fall into the same column of pixels.
fn columns(points: &[(u64, u64)], last: u64) -> impl Iterator<Item = &[(u64, u64)]> {
    let column = move |event: u64| u128::from(event) * u128::from(INNER_WIDTH) / u128::from(last);
    points.chunk_by(move |a, b| column(a.0) == column(b.0))
}

/// Text for the inside of an element.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            // Not allowed in XML at all.
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<(u64, u64)>) -> Plot {
        Plot {
            title: "a <b> & c".to_owned(),
            x_label: "event".to_owned(),
            lines: vec![Line { label: "default".to_owned(), points }],
            limit: None,
        }
    }

    #[test]
    fn the_axis_has_round_numbers_that_cover_the_line() {
        for bytes in [0, 1, 700, 3 * MIB, 513 * MIB, 9_684_647_936, 141 * GIB, 1 << 50] {
            let axis = Axis::covering(bytes);
            assert!(axis.top() >= bytes as f64, "{bytes}");
            assert!((1..=6).contains(&axis.ticks), "{bytes}: {} ticks", axis.ticks);
        }
        let labels = |bytes| {
            let axis = Axis::covering(bytes);
            (0..=axis.ticks).map(|t| axis.label(t)).collect::<Vec<_>>()
        };
        assert_eq!(labels(9_684_647_936), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(labels(10 * GIB), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(labels(600 * MIB), ["0", "0.2", "0.4", "0.6"]);
    }

    #[test]
    fn a_long_history_makes_no_large_picture_and_keeps_its_peak() {
        let mut points: Vec<(u64, u64)> = (0..1_000_000).map(|i| (i, (i % 1000) * MIB)).collect();
        points[123_456].1 = 5000 * MIB;
        let svg = plot(points).to_svg();
        assert!(svg.len() < 100_000, "{} bytes", svg.len());
        let top = Axis::covering(5000 * MIB).top();
        let peak = format!("V{}", y((5000 * MIB) as f64, top));
        assert!(svg.contains(&peak));
    }

    #[test]
    fn a_step_holds_until_the_next_point() {
        let drawn = path(&[(0, 0), (50, 100), (100, 50)], 100, 100.0);
        let (bottom, top, middle) = (y(0.0, 100.0), y(100.0, 100.0), y(50.0, 100.0));
        let (x0, x1, x2) = (x(0, 100), x(50, 100), x(100, 100));
        assert_eq!(drawn, format!("M{x0} {bottom}H{x1}V{top}H{x2}V{middle}H{x2}"));
    }

    #[test]
    fn text_is_escaped_and_empty_plots_are_drawn() {
        let mut empty = plot(Vec::new());
        empty.limit = Some(("capacity \u{1b}".to_owned(), 40 * GIB));
        let svg = empty.to_svg();
        assert!(svg.contains("a &lt;b&gt; &amp; c") && !svg.contains('\u{1b}'));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }
}
