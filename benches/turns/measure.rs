//! Measures processes that it starts: their processor time, memory and syncs.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::time::{ClockId, clock_gettime};

use crate::support::provider::{self, Responder};

/// The resources that a process used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// User and system time of all its threads, in microseconds.
    pub(crate) cpu_us: f64,
    /// Wall time, in microseconds.
    pub(crate) wall_us: f64,
    /// Number of syncs.
    pub(crate) syncs: f64,
}

impl Cost {
    pub(crate) fn print(&self) {
        println!("{} {} {}", self.cpu_us, self.wall_us, self.syncs);
    }
}

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

/// The provider's process: prints its address and answers until its input ends.
pub(crate) fn serve(responder: impl Responder) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let provider = runtime.block_on(provider::Provider::start(responder));
    provider.forget_requests();
    println!("{}", provider.base_url());
    std::io::stdout().flush().expect("a reader");
    let _ = std::io::stdin().read(&mut [0]);
}

fn own(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("its own path"));
    command.args(arguments);
    command
}

/// Runs this program in a process of its own with these arguments, and returns the figures that it
/// prints.
pub(crate) fn figures(arguments: &[&str]) -> Vec<f64> {
    let output = own(arguments).stderr(Stdio::inherit()).output().expect("the process starts");
    assert!(output.status.success(), "{arguments:?}: {}", output.status);
    let text = String::from_utf8(output.stdout).expect("figures");
    text.split_whitespace().map(|figure| figure.parse().expect("a figure")).collect()
}

/// Returns the memory of a process with so many idle agents, in kB.
pub(crate) fn idle_kb(agents: usize, ground: &Path) -> f64 {
    figures(&["idle", &agents.to_string(), ground.to_str().expect("a path of our own")])[0]
}

/// Returns the processor time of this process so far, as `getrusage` counts it, in microseconds.
pub(crate) fn own_cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Returns the processor time of the children that have ended, in microseconds, counted in clock
/// ticks.
pub(crate) fn children_cpu_us() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("procfs");
    // Fields 16 and 17; the second, in brackets, is a name that may hold spaces.
    let after_name = stat.rsplit_once(')').expect("a name").1;
    let ticks = after_name.split_whitespace().skip(13).take(2);
    let ticks: f64 = ticks.map(|ticks| ticks.parse::<f64>().expect("ticks")).sum();
    ticks * 1e6 / rustix::param::clock_ticks_per_second() as f64
}

/// Returns the memory that this process holds now, in kB.
pub(crate) fn own_memory_kb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let figure = line.and_then(|line| line.split_whitespace().next()).expect("VmRSS");
    figure.parse().expect("kB")
}
