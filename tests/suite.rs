//! The integration tests: one binary, so that everything is linked once. `tests/README.md` is the
//! way in.

// By this name the generator of conversations, a file of the library, finds the library.
use callsheet::message;

mod agents;
mod cli;
mod context;
mod docs;
mod durability;
mod graph;
mod hostile;
mod providers;
mod support;
