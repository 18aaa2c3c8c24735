//! The median of figures, with the least and the most.

use std::fmt;

/// The median of some figures, with the least and the most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    pub(crate) fn of(figures: impl Iterator<Item = f64>) -> Self {
        let mut figures: Vec<f64> = figures.collect();
        figures.sort_by(f64::total_cmp);
        let (least, most) = (figures[0], figures[figures.len() - 1]);
        let (low, high) = ((figures.len() - 1) / 2, figures.len() / 2);
        Self { median: f64::midpoint(figures[low], figures[high]), least, most }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = if self.median < 10.0 { 2 } else { 0 };
        let Self { median, least, most } = self;
        write!(f, "{median:.places$} ({least:.places$}-{most:.places$})")
    }
}
