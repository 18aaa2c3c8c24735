//! Times for people: in the time zone of the machine, or in UTC on request.

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// The time zone in which times are shown.
#[derive(Clone, Debug)]
pub(super) struct Times {
    zone: TimeZone,
}

impl Times {
    /// Takes the time zone of the machine (`TZ`, else `/etc/localtime`), or UTC.
    pub(super) fn new(utc: bool) -> Self {
        Self { zone: if utc { TimeZone::UTC } else { TimeZone::system() } }
    }

    pub(super) fn zone(&self) -> &TimeZone {
        &self.zone
    }

    fn at(&self, ms: i64) -> Zoned {
        Timestamp::from_millisecond(ms).unwrap_or_default().to_zoned(self.zone.clone())
    }

    /// Formats the time of day of an event with its offset, which UTC needs not: `03:33:27.687`,
    /// `04:33:27.687+01`.
    pub(super) fn of_day(&self, ms: i64) -> String {
        let at = self.at(ms);
        let offset = at.offset().seconds() / 60;
        let sign = if offset < 0 { '-' } else { '+' };
        let (hours, minutes) = (offset.abs() / 60, offset.abs() % 60);
        let time = at.strftime("%H:%M:%S%.3f");
        match (hours, minutes) {
            (0, 0) => time.to_string(),
            (hours, 0) => format!("{time}{sign}{hours:02}"),
            (hours, minutes) => format!("{time}{sign}{hours:02}:{minutes:02}"),
        }
    }

    /// Formats a time to the second, with the day unless it is today: `03:33:27`, `Nov 21, 03:33:27`.
    pub(super) fn day_and_time(&self, ms: i64) -> String {
        let (at, now) = (self.at(ms), Timestamp::now().to_zoned(self.zone.clone()));
        let form = if at.date() == now.date() { "%H:%M:%S" } else { "%b %d, %H:%M:%S" };
        at.strftime(form).to_string()
    }

    /// Formats a time as short as it can be understood today: `03:33`, else `Nov 21`.
    pub(super) fn short(&self, ms: i64) -> String {
        let (at, now) = (self.at(ms), Timestamp::now().to_zoned(self.zone.clone()));
        let form = if at.date() == now.date() { "%H:%M" } else { "%b %d" };
        at.strftime(form).to_string()
    }
}

/// The time of a line of the program's log, as that of the lines of a run beside it.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfLog;

impl FormatTime for OfLog {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        let times = Times::new(false);
        writer.write_str(&times.of_day(Timestamp::now().as_millisecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_show_their_offset() {
        // 2026-11-18T02:14:05.123Z, in zones of 0, +1, -3:30 and +5:45 hours.
        let ms = 1_794_968_045_123;
        for (seconds, shown) in [
            (0, "02:14:05.123"),
            (3_600, "03:14:05.123+01"),
            (-12_600, "22:44:05.123-03:30"),
            (20_700, "07:59:05.123+05:45"),
        ] {
            let zone = TimeZone::fixed(jiff::tz::Offset::from_seconds(seconds).expect("an offset"));
            assert_eq!(Times { zone }.of_day(ms), shown);
        }
        assert_eq!(Times::new(true).short(ms), "Nov 18");
        assert_eq!(Times::new(true).day_and_time(ms), "Nov 18, 02:14:05");
    }
}
