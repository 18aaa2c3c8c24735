//! The provider of a benchmark, in a process of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};

use crate::measure::own;
use crate::support::provider::{self, Responder};

/// The provider's process; it ends when this is dropped.
pub(crate) struct Provider {
    process: Child,
    url: String,
}

impl Provider {
    /// Starts this program as a provider, with these arguments.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = own(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("the provider starts");
        let mut url = String::new();
        let out = process.stdout.take().expect("its output is piped");
        BufReader::new(out).read_line(&mut url).expect("it says where it is");
        Self { process, url: url.trim().to_owned() }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// What that process does: says where it is and answers until its input ends.
pub(crate) fn serve(responder: impl Responder) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let provider = runtime.block_on(provider::Provider::start(responder));
    provider.forget_requests();
    println!("{}", provider.base_url());
    std::io::stdout().flush().expect("a reader");
    let _ = std::io::stdin().read(&mut [0]);
}
