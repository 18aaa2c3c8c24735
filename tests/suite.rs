//! The integration tests: one binary, so that everything is linked once.

// By these names the generator of conversations, a file of the library, finds the library.
use callsheet::{context, message};

mod accept;
mod architecture;
mod benchmarks;
mod capabilities;
mod cli;
mod compaction;
#[path = "support/context_server.rs"]
mod context_server;
#[path = "../src/context/testing.rs"]
mod conversations;
mod delegation;
mod disk;
mod endless;
mod examples;
mod fallbacks;
mod fault_table;
#[path = "support/faults.rs"]
mod faults;
mod fork;
mod gateway;
mod graph;
mod interrupted;
mod limits;
mod live_smoke;
#[path = "../benches/context/made.rs"]
mod made;
mod measure;
mod media;
#[path = "support/memory_journal.rs"]
mod memory_journal;
mod odd_servers;
mod presets;
mod races;
mod reasoning;
mod recall;
mod relief;
mod responses;
mod resume;
mod strategies;
mod structured;
mod supervision;
mod support;
mod survey_script;
#[path = "support/test_run.rs"]
mod test_run;
mod tools;
mod transcripts;
mod validity;
mod views;
mod wire;
mod wrapper;
