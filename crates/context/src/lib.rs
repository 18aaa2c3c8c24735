//! The context engine: how the conversation of an agent stays within the window of its model.
//!
//! Views, layers, presets and the checks of a request. Pure: it stands alone, and is judged alone (`benches/context.rs`).

use callsheet_words::{failure, id, message, output, own_tool, policy, spec, spending};

pub mod context;
