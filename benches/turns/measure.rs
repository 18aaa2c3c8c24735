//! Measuring: processes of their own, what they used, and medians.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::time::{ClockId, clock_gettime};

use crate::support::provider::{self, Responder};

/// What a process used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// User and system time of all its threads, in microseconds.
    pub(crate) cpu_us: f64,
    /// In microseconds.
    pub(crate) wall_us: f64,
    /// How often it waited for the disk.
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
    /// The arguments are those with which this program is a provider.
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

fn own(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("its own path"));
    command.args(arguments);
    command
}

/// The figures that this program prints in a process of its own, with these arguments.
pub(crate) fn figures(arguments: &[&str]) -> Vec<f64> {
    let output = own(arguments).stderr(Stdio::inherit()).output().expect("the process starts");
    assert!(output.status.success(), "{arguments:?}: {}", output.status);
    let text = String::from_utf8(output.stdout).expect("figures");
    text.split_whitespace().map(|figure| figure.parse().expect("a figure")).collect()
}

/// The memory of a process with so many idle agents, in kB.
pub(crate) fn idle_kb(agents: usize, ground: &Path) -> f64 {
    figures(&["idle", &agents.to_string(), ground.to_str().expect("a path of our own")])[0]
}

/// The processor time of this process so far, as `getrusage` counts it, in microseconds.
pub(crate) fn own_cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// The processor time of the children that have ended, in microseconds, counted in clock ticks.
pub(crate) fn children_cpu_us() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("procfs");
    // Fields 16 and 17; the second, in brackets, is a name that may hold spaces.
    let after_name = stat.rsplit_once(')').expect("a name").1;
    let ticks = after_name.split_whitespace().skip(13).take(2);
    let ticks: f64 = ticks.map(|ticks| ticks.parse::<f64>().expect("ticks")).sum();
    ticks * 1e6 / rustix::param::clock_ticks_per_second() as f64
}

/// The memory that this process holds now, in kB.
pub(crate) fn own_memory_kb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let figure = line.and_then(|line| line.split_whitespace().next()).expect("VmRSS");
    figure.parse().expect("kB")
}
