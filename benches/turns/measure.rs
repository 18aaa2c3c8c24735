//! Measures processes that it starts: their processor time, memory and syncs.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::time::{ClockId, clock_gettime};

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

/// This program with these arguments, as a command.
pub(crate) fn own(arguments: &[&str]) -> Command {
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
    ticks_us(13) + ticks_us(14)
}

/// Returns the user time, without system time, of this process and of its children that have ended,
/// in microseconds, counted in clock ticks.
pub(crate) fn user_us() -> f64 {
    ticks_us(11) + ticks_us(13)
}

/// Returns a field of `/proc/self/stat`, counted from the state as 0, in microseconds.
fn ticks_us(field: usize) -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("procfs");
    // The name, in brackets, may hold spaces.
    let after_name = stat.rsplit_once(')').expect("a name").1;
    let ticks = after_name.split_whitespace().nth(field).expect("a field");
    ticks.parse::<f64>().expect("ticks") * 1e6 / rustix::param::clock_ticks_per_second() as f64
}

/// Returns the memory that this process holds now, in kB.
pub(crate) fn own_memory_kb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let figure = line.and_then(|line| line.split_whitespace().next()).expect("VmRSS");
    figure.parse().expect("kB")
}
