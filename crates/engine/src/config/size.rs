//! Reads and writes sizes in bytes: `512MiB`, `8GiB`.

use std::fmt;

use figment::value::Value;
use serde_json::Value as Json;

use super::shape::Read;
use super::tree::Places;

/// The units with their bytes.
const UNITS: [(&str, u64); 4] =
    [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Size(pub(super) u64);

impl Size {
    /// Reads a whole number with a unit. Returns `None` for any other text.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit())?;
        let (count, unit) = text.split_at(digits);
        let (_, size) = UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
        Some(Self(count.parse::<u64>().ok()?.checked_mul(*size)?))
    }
}

/// Writes the size in the largest unit that holds it exactly; [`Size::parse`] reads it back.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS.iter().rev().find(|(_, size)| self.0.is_multiple_of(*size));
        let (unit, size) = whole.unwrap_or(&UNITS[0]);
        write!(f, "{}{unit}", self.0 / size)
    }
}

impl Read for Size {
    fn read(value: &Value, places: &Places) -> Option<Self> {
        Self::parse(&places.text(value)?)
    }

    fn show(&self) -> Json {
        self.to_string().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_reads_and_writes() {
        for (text, bytes) in
            [("1KiB", 1 << 10), ("512MiB", 512 << 20), ("8GiB", 8 << 30), ("3TiB", 3 << 40)]
        {
            assert_eq!(Size::parse(text), Some(Size(bytes)));
            assert_eq!(Size(bytes).to_string(), text);
        }
        assert_eq!(Size::parse(" 8 GiB "), Some(Size(8 << 30)));
        for bad in ["", "8", "GiB", "8GB", "8gib", "1.5GiB", "-1GiB", "8GiB1MiB", "99999999TiB"] {
            assert_eq!(Size::parse(bad), None, "{bad}");
        }
    }
}
