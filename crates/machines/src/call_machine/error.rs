//! The errors of model calls: the class of each, which decides what follows.

use std::time::Duration;

use crate::failure::FailureKind;
use crate::message::Usage;
use crate::spec::capability::Capability;

/// The class of a failed call, which decides what the caller does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The conversation does not fit: it has `have` tokens and may have `max`.
    ContextTokens {
        /// Tokens in the request, if the provider named them.
        have: Option<u64>,
        /// Tokens that are allowed, if the provider named them.
        max: Option<u64>,
    },
    /// Input and output limit together do not fit the window.
    ContextPlusOutput {
        /// Input tokens, if the provider named them.
        input: Option<u64>,
        /// Size of the window in tokens, if the provider named it.
        limit: Option<u64>,
    },
    /// The body of the request has more bytes than the provider accepts.
    RequestBytes,
    /// A tool call has no result, or the reverse: an error in callsheet.
    Pairing,
    /// A thinking block was changed: an error in callsheet.
    ThinkingChanged,
    /// Too many requests or tokens in a minute.
    RateLimited,
    /// The provider has no capacity.
    Overloaded,
    /// The provider has a temporary failure (408, 409, 5xx).
    ServerError,
    /// The reply passed a bound on what a server may send. Another try would cost as much.
    ReplyTooLarge,
    /// There was no connection, or it broke before a block was complete.
    Connection,
    /// The first byte did not arrive in time, or the stream was silent for too long.
    IdleTimeout,
    /// The key was refused, or the account may not make this call.
    Auth,
    /// The quota or the credit of the account is used up.
    QuotaExhausted,
    /// The provider does not know the model, or has nothing at the address.
    NotFound,
    /// The provider does not support the work on the context that the request asked for.
    Unsupported(Capability),
    /// The provider does not hold an answer to the schema that the request has.
    SchemaRefused,
    /// Any other error: the same request would fail again.
    Fatal,
}

impl ErrorClass {
    /// Returns true if the same request may succeed later.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        self != Self::ReplyTooLarge && self.kind().is_transient()
    }

    /// Returns the tokens of the refused request and of the window, if the provider named them.
    #[must_use]
    pub fn context(self) -> (Option<u64>, Option<u64>) {
        match self {
            Self::ContextTokens { have, max } => (have, max),
            Self::ContextPlusOutput { input, limit } => (input, limit),
            Self::RequestBytes
            | Self::Pairing
            | Self::ThinkingChanged
            | Self::RateLimited
            | Self::Overloaded
            | Self::ServerError
            | Self::ReplyTooLarge
            | Self::Connection
            | Self::IdleTimeout
            | Self::Auth
            | Self::QuotaExhausted
            | Self::NotFound
            | Self::Unsupported(_)
            | Self::SchemaRefused
            | Self::Fatal => (None, None),
        }
    }

    /// Returns the kind of failure that is recorded when no attempt is left.
    #[must_use]
    pub fn kind(self) -> FailureKind {
        match self {
            Self::ContextTokens { .. } | Self::ContextPlusOutput { .. } => {
                FailureKind::ContextOverflow
            }
            Self::RequestBytes => FailureKind::RequestTooLarge,
            Self::RateLimited => FailureKind::RateLimit,
            Self::Overloaded => FailureKind::Overloaded,
            Self::ServerError | Self::ReplyTooLarge => FailureKind::ServerError,
            Self::Connection => FailureKind::Connection,
            Self::IdleTimeout => FailureKind::IdleTimeout,
            Self::Auth => FailureKind::Auth,
            Self::QuotaExhausted => FailureKind::Quota,
            Self::Pairing
            | Self::ThinkingChanged
            | Self::NotFound
            | Self::Unsupported(_)
            | Self::SchemaRefused
            | Self::Fatal => FailureKind::InvalidRequest,
        }
    }
}

/// The error of a call that returned no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// The class of the error.
    pub class: ErrorClass,
    /// The HTTP status, if there was a response.
    pub status: Option<u16>,
    /// The message of the provider, or of callsheet.
    pub message: String,
    /// The time that the provider asked to wait.
    pub retry_after: Option<Duration>,
    /// What the headers say is left of the limit that has the least left, if they say it.
    pub limit_left: Option<u64>,
    /// The value of the header `x-should-retry`, which overrides the class.
    pub should_retry: Option<bool>,
    /// The most attempts that make sense, if they are fewer than the policy allows.
    pub most_attempts: Option<u32>,
    /// The tokens of the part of the reply that had arrived, if any had: as the provider counted
    /// them, or estimated.
    pub usage: Option<Box<Usage>>,
    /// True if there was no connection, so that the request was not sent.
    pub never_sent: bool,
}

impl ModelError {
    /// Returns true if the attempt may have cost something beyond the tokens that are known: its request may have
    /// been read, and nobody counted it. What was refused before any work costs nothing.
    #[must_use]
    pub fn may_have_cost(&self) -> bool {
        match self.class {
            // A gateway that gave up waiting does not know what the model behind it did.
            ErrorClass::ServerError => matches!(self.status, None | Some(408 | 502 | 504)),
            ErrorClass::ReplyTooLarge | ErrorClass::IdleTimeout => true,
            ErrorClass::Connection => !self.never_sent,
            ErrorClass::Overloaded | ErrorClass::RateLimited => self.status.is_none(),
            ErrorClass::ContextTokens { .. }
            | ErrorClass::ContextPlusOutput { .. }
            | ErrorClass::RequestBytes
            | ErrorClass::Pairing
            | ErrorClass::ThinkingChanged
            | ErrorClass::Auth
            | ErrorClass::QuotaExhausted
            | ErrorClass::NotFound
            | ErrorClass::Unsupported(_)
            | ErrorClass::SchemaRefused
            | ErrorClass::Fatal => false,
        }
    }

    /// Creates an error with a class and a message only.
    #[must_use]
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self {
            class,
            status: None,
            message: message.into(),
            retry_after: None,
            limit_left: None,
            should_retry: None,
            most_attempts: None,
            usage: None,
            never_sent: false,
        }
    }

    /// Returns true if another attempt may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.should_retry.unwrap_or_else(|| self.class.is_retryable())
    }
}
