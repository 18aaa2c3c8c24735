//! The model clients: three protocols, their streams, and the scripted model.
//!
//! A client turns a request into bytes and bytes into a reply or a typed error. It never decides what follows an error.

use callsheet_context::context;
use callsheet_machines::{admission, call_machine, template};
use callsheet_words::{fingerprint, glob, id, message, redaction, spec, tool_spec};

pub mod model;
