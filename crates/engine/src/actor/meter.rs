//! The meter of calls: the tokens that they have cost so far, also those of a call that is cut.

use parking_lot::Mutex;

use crate::context::Spent;
use crate::message::{Usage, UsageSource};
use crate::spec::ModelSpec;

/// The tokens of calls that one caller makes one after the other. A call that is dropped stays on it with what
/// its stream had reported.
#[derive(Debug, Default)]
pub struct Meter(Mutex<Calls>);

#[derive(Debug, Default)]
struct Calls {
    ended: Usage,
    open: Option<Open>,
}

/// A call whose request has left.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// The tokens that the request is expected to hold.
    expected: u64,
    /// What the stream has reported.
    reported: Usage,
}

impl Meter {
    /// Notes that a request leaves which is expected to hold so many tokens.
    pub(super) fn begin(&self, expected: u64) {
        self.0.lock().open = Some(Open { expected, reported: Usage::default() });
    }

    /// Notes what the stream of the call has reported so far.
    pub(super) fn report(&self, usage: Usage) {
        self.0.lock().open.iter_mut().for_each(|open| open.reported = usage);
    }

    /// Notes the end of the call, and what it cost.
    pub(super) fn end(&self, usage: Usage) {
        let mut calls = self.0.lock();
        calls.open = None;
        calls.ended += usage;
    }

    /// Returns the tokens of the call under way, if its request has left: as its stream reported them, with the
    /// estimate of the request where it reported no input.
    pub(super) fn open(&self) -> Option<(Usage, UsageSource)> {
        self.0.lock().open.map(|open| open.reported.or_expected(open.expected))
    }

    /// Returns what the stream of the call under way has reported so far.
    pub(super) fn reported(&self) -> Usage {
        self.0.lock().open.map(|open| open.reported).unwrap_or_default()
    }

    /// Returns the cost of all calls to this model, that of the one under way included; `None` if nothing was
    /// spent.
    pub(super) fn cost(&self, spec: &ModelSpec) -> Option<Spent> {
        let usage = self.spent();
        (usage != Usage::default()).then(|| spent(spec, &usage))
    }

    /// Returns the tokens of all calls, that of the one under way included.
    pub(super) fn spent(&self) -> Usage {
        let open = self.open().map(|(usage, _)| usage).unwrap_or_default();
        self.0.lock().ended + open
    }
}

/// Returns the cost of these tokens.
pub(super) fn spent(spec: &ModelSpec, usage: &Usage) -> Spent {
    let cost_usd = spec.price.map(|price| price.cost(usage));
    Spent { model: spec.name.clone(), usage: *usage, cost_usd }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_cut_costs_what_its_stream_reported() {
        let meter = Meter::default();
        assert_eq!((meter.open(), meter.spent()), (None, Usage::default()), "nothing was sent");
        meter.begin(70);
        let expected = Usage { input: 70, ..Usage::default() };
        assert_eq!(meter.open(), Some((expected, UsageSource::Expected)));
        meter.report(Usage { output: 3, ..Usage::default() });
        let written = Usage { output: 3, ..expected };
        assert_eq!(meter.open(), Some((written, UsageSource::Expected)));
        let reported = Usage { input: 50_000, output: 4, ..Usage::default() };
        meter.report(reported);
        assert_eq!(meter.open(), Some((reported, UsageSource::Reported)));
        meter.end(Usage { output: 9, ..reported });
        assert_eq!(meter.open(), None);
        meter.begin(1);
        assert_eq!(meter.spent(), Usage { input: 50_001, output: 9, ..Usage::default() });
    }
}
