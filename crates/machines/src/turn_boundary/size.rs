//! The size of an agent's next request, and the part of the window that is left.
//!
//! Pure. Every question has the view as an argument, because edits change the view between two
//! questions; the rest stays as the records have it.

use super::Terms;
use crate::context::layers::{Surroundings, Window};
use crate::context::measure::{self, Extent, WindowSize};
use crate::context::sending::validity::Fit;
use crate::context::view::View;
use crate::message::Message;
use crate::spec::ModelSpec;
use crate::turn_machine::{Machine, Mail};

/// Least output, in tokens, that is worth asking for if input and output together do not fit the
/// window: an answer of some 700 words.
pub const LEAST_OUTPUT_TOKENS: u64 = 1_024;

/// Tokens for each character while no provider has reported a size: a token of text or code has
/// three characters or more.
const UNREPORTED_TOKENS_PER_CHAR: f64 = 1.0 / 3.0;

/// The measure of one agent's requests.
pub(super) struct Size<'a> {
    machine: &'a Machine,
    model: &'a ModelSpec,
    /// Estimated tokens of the message that is to join the view.
    joining: u64,
}

impl<'a> Size<'a> {
    pub(super) fn new(machine: &'a Machine, model: &'a ModelSpec, mail: Option<&Mail>) -> Self {
        let joining = machine.joining().and_then(|json| json.decode::<Message>().ok());
        let joining = joining.map_or(0, |message| measure::message_tokens(&message));
        let joining = joining + mail.map_or(0, |mail| measure::message_tokens(&mail.message()));
        Self { machine, model, joining }
    }

    /// Returns the facts that the layers may use besides the view.
    pub(super) fn surroundings<'b>(
        &self,
        terms: &Terms<'b>,
        view: &View,
        state: Option<&'b str>,
    ) -> Surroundings<'b> {
        let measure = self.machine.measure();
        let window = Window {
            tokens: self.window().tokens,
            output: self.model.max_output_tokens,
            overhead: measure.overhead(),
        };
        let limit = window.tokens.saturating_sub(window.output);
        let free_tokens =
            measure.fitting_tokens(self.extent(view), limit).saturating_sub(self.joining);
        Surroundings {
            transcript: terms.transcript,
            results: terms.results,
            window,
            tokens_per_char: self.tokens_per_char(view),
            measured_room: Some(free_tokens),
            price: self.model.price.and_then(|price| price.relative()).unwrap_or_default(),
            idle: terms.idle,
            state,
        }
    }

    /// Returns the tokens that the request is expected to hold.
    pub(super) fn expected_tokens(&self, view: &View) -> u64 {
        self.machine.measure().size(self.extent(view))
    }

    /// Returns the least tokens that the request needs after all that the guard could do, with the
    /// window that must hold them.
    pub(super) fn fit(&self, view: &View) -> Fit {
        let needed = self.machine.measure().at_least(self.extent(view));
        Fit { needed, window: self.window() }
    }

    /// Returns the most tokens of the reply: fewer than the model allows if input and output
    /// together would not fit the window.
    pub(super) fn output_limit(&self, view: &View) -> u64 {
        let measure = self.machine.measure();
        // The size of a first request has a wide margin, which must not shorten the answer.
        let size = match measure.is_calibrated() {
            true => measure.at_most(self.extent(view)),
            false => self.expected_tokens(view),
        };
        let free_tokens = self.window().tokens.saturating_sub(size);
        self.model.max_output_tokens.min(free_tokens.max(LEAST_OUTPUT_TOKENS))
    }

    /// Returns the extent of the request's messages: the view and the message that joins it.
    fn extent(&self, view: &View) -> Extent {
        let extent = view.extent();
        Extent { held: extent.held + self.joining, ..extent }
    }

    /// Returns the model's window, plus the tokens that the provider took out of the latest
    /// request: it takes them out of the next request as well.
    fn window(&self) -> WindowSize {
        let mut window = self.machine.measure().window(self.model.context_window);
        window.tokens += self.machine.provider().cleared_tokens;
        window
    }

    /// Returns the expected tokens for each character of the view; until a provider has reported a
    /// size, at least [`UNREPORTED_TOKENS_PER_CHAR`].
    #[expect(clippy::cast_precision_loss, reason = "a view has far fewer than 2^52 tokens")]
    fn tokens_per_char(&self, view: &View) -> f64 {
        let measure = self.machine.measure();
        let tokens = measure.size(view.extent()).saturating_sub(measure.overhead());
        let expected = tokens.max(1) as f64 / view.chars().max(1) as f64;
        if measure.is_calibrated() { expected } else { expected.max(UNREPORTED_TOKENS_PER_CHAR) }
    }
}
