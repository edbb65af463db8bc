//! What is taken for granted where values cannot be known: hints, and the draws that they leave open.
//!
//! A draw is one complete set of assumptions. The first has what the hints say, or the middle of it; further ones
//! spread what the hints leave open, so that their peaks show what it matters.

use std::fmt;

use serde::Serialize;

/// How often indices that nothing is known of are chosen, such as the experts of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Routing {
    /// Each is as likely as any other.
    #[default]
    Uniform,
    /// All are chosen equally often.
    Balanced,
    /// Some are far likelier than others, and at each call other ones.
    Skewed,
    /// Every row chooses the same.
    Worst,
}

impl Routing {
    const ALL: [Self; 4] = [Self::Uniform, Self::Balanced, Self::Skewed, Self::Worst];

    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Balanced => "balanced",
            Self::Skewed => "skewed",
            Self::Worst => "worst",
        }
    }
}

/// A share between 0 and 1, or a range of them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Share {
    low: f64,
    high: f64,
}

impl Share {
    fn parse(text: &str) -> Result<Self, String> {
        let one = |text: &str| match text.trim().parse::<f64>() {
            Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
            _ => Err(format!("'{text}' is not a share between 0 and 1")),
        };
        match text.split_once("..") {
            None => one(text).map(|share| Self { low: share, high: share }),
            Some((low, high)) => {
                let share = Self { low: one(low)?, high: one(high)? };
                if share.low > share.high {
                    return Err(format!("'{text}' goes down: write the smaller share first"));
                }
                Ok(share)
            }
        }
    }

    /// The share of draw `number` of `count`: the middle, then the upper end, the lower one and what lies between.
    fn of(self, number: u32, count: u32) -> f64 {
        let part = match number {
            0 => 0.5,
            1 => 1.0,
            2 => 0.0,
            _ => f64::from(number - 2) / f64::from(count.saturating_sub(2).max(1)),
        };
        self.low + (self.high - self.low) * part
    }
}

/// Hints, as the command line gives them; what is not hinted at is open.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assume {
    topk: Option<Routing>,
    mask: Option<Share>,
    nms: Option<Share>,
    unique: Option<Share>,
    infinite: u32,
}

/// One complete set of assumptions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Draw {
    /// How often indices are chosen.
    pub topk: Routing,
    /// Share of a mask that is true.
    pub mask: f64,
    /// Share of boxes that non-maximum suppression keeps.
    pub nms: f64,
    /// Share of values that differ from all others.
    pub unique: f64,
    /// In so many of its first steps, a gradient scaler finds infinities.
    pub infinite: u32,
    /// Seed of what is drawn.
    pub seed: u32,
}

impl fmt::Display for Draw {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topk, mask, nms, unique, .. } = self;
        write!(to, "topk={},mask={mask},nms={nms},unique={unique}", topk.name())?;
        if self.infinite > 0 { write!(to, ",infinite={}", self.infinite) } else { Ok(()) }
    }
}

/// Draws where none are asked for and values had to be assumed.
pub const DRAWS: u32 = 5;
/// Draws after which the rest is left out where nothing has changed: the first and both extremes.
pub const EXTREMES: u32 = 3;
/// Routings of the draws behind the first, where no hint says one.
const OTHERS: [Routing; 4] = [Routing::Worst, Routing::Balanced, Routing::Skewed, Routing::Skewed];
/// Shares that the draws behind the first spread over where no hint says one.
const OPEN_MASK: Share = Share { low: 0.0, high: 1.0 };
const OPEN_NMS: Share = Share { low: 0.1, high: 1.0 };
const OPEN_UNIQUE: Share = Share { low: 0.1, high: 1.0 };

impl Assume {
    /// Takes a hint such as `topk=skewed`, `mask=0.3` or `nms=0.1..0.5`.
    ///
    /// # Errors
    /// A sentence that says what can be written.
    pub fn hint(&mut self, text: &str) -> Result<(), String> {
        let (name, value) =
            text.split_once('=').ok_or("write NAME=VALUE, such as topk=skewed or mask=0.3")?;
        match name {
            "topk" => {
                let found = Routing::ALL.into_iter().find(|routing| routing.name() == value);
                let words = "uniform, balanced, skewed and worst";
                let why = || format!("'{value}' is no way to choose; {words} are");
                self.topk = Some(found.ok_or_else(why)?);
            }
            "mask" => self.mask = Some(Share::parse(value)?),
            "nms" => self.nms = Some(Share::parse(value)?),
            "unique" => self.unique = Some(Share::parse(value)?),
            "infinite" => {
                let why = |_| format!("'{value}' is no number of steps");
                self.infinite = value.trim().parse().map_err(why)?;
            }
            _ => {
                let known = "topk, mask, nms, unique and infinite are";
                return Err(format!("'{name}' is not known; {known}"));
            }
        }
        Ok(())
    }

    /// The assumptions of draw `number` of `count`. The first needs no hint: indices are drawn uniformly, half of a
    /// mask is true, all boxes are kept, all values differ.
    pub fn draw(&self, number: u32, count: u32) -> Draw {
        let routing = match number.checked_sub(1) {
            None => Routing::default(),
            Some(other) => OTHERS[other as usize % OTHERS.len()],
        };
        let share = |given: Option<Share>, first: f64, open: Share| match given {
            Some(share) => share.of(number, count),
            None if number == 0 => first,
            None => open.of(number, count),
        };
        Draw {
            topk: self.topk.unwrap_or(routing),
            mask: share(self.mask, 0.5, OPEN_MASK),
            nms: share(self.nms, 1.0, OPEN_NMS),
            unique: share(self.unique, 1.0, OPEN_UNIQUE),
            infinite: self.infinite,
            seed: number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(all: &[&str]) -> Assume {
        let mut assume = Assume::default();
        for text in all {
            assume.hint(text).expect("a hint");
        }
        assume
    }

    #[test]
    fn without_hints_the_draws_spread_over_what_may_be() {
        let draws: Vec<Draw> = (0..DRAWS).map(|n| Assume::default().draw(n, DRAWS)).collect();
        assert_eq!(draws[0].to_string(), "topk=uniform,mask=0.5,nms=1,unique=1");
        for routing in Routing::ALL {
            assert!(draws.iter().any(|draw| draw.topk == routing), "{routing:?}");
        }
        let masks: Vec<f64> = draws.iter().map(|draw| (draw.mask * 100.0).round()).collect();
        assert_eq!(masks, [50.0, 100.0, 0.0, 33.0, 67.0]);
        let extremes = &draws[1..EXTREMES as usize];
        let routings: Vec<Routing> = extremes.iter().map(|draw| draw.topk).collect();
        assert_eq!(routings, [Routing::Worst, Routing::Balanced]);
        assert_eq!(draws[4].seed, 4);
    }

    #[test]
    fn what_is_hinted_at_stays_and_a_range_is_walked_through() {
        let assume = hints(&["topk=worst", "mask=0.2..0.6", "nms=0.3"]);
        let draws: Vec<Draw> = (0..4).map(|n| assume.draw(n, 4)).collect();
        assert!(draws.iter().all(|draw| draw.topk == Routing::Worst && draw.nms == 0.3));
        let masks: Vec<f64> = draws.iter().map(|draw| (draw.mask * 100.0).round()).collect();
        assert_eq!(masks, [40.0, 60.0, 20.0, 40.0]);
    }

    #[test]
    fn what_is_no_hint_is_refused_with_what_is() {
        let said = |text| Assume::default().hint(text).expect_err(text);
        assert!(said("topk").contains("NAME=VALUE"));
        assert!(said("topk=random").contains("balanced"));
        assert!(said("loss=0.1").contains("unique"));
        for text in ["mask=2", "mask=-0.1", "mask=x", "mask=0.1..2", "mask="] {
            assert!(said(text).contains("between 0 and 1"), "{text}");
        }
        assert!(said("nms=0.5..0.1").contains("smaller"));
        assert!(said("infinite=0.5").contains("number of steps"));
    }

    #[test]
    fn steps_that_a_scaler_skips_are_said_and_not_varied() {
        let draws: Vec<Draw> = (0..3).map(|n| hints(&["infinite=2"]).draw(n, 3)).collect();
        assert!(draws.iter().all(|draw| draw.infinite == 2));
        assert!(draws[0].to_string().ends_with(",infinite=2"));
    }
}
