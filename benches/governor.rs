//! `cargo bench --bench governor`: what the governor of a provider makes of limits and of noise.
//!
//! Plays twenty agents against providers that refuse calls by chance, by windows, by buckets, or for a while,
//! under a clock of its own, and prints the target and the result of each case, one that missed of ten seeds
//! if there is one. Fails if three miss: one question of 64 is answered wrongly by chance. Ends within seconds.

#![expect(clippy::print_stdout, reason = "a benchmark shows its figures")]

use std::process::ExitCode;
use std::time::Instant;

use callsheet::governor;

/// Seeds of each case.
const SEEDS: u64 = 10;

fn main() -> ExitCode {
    println!("{:<44} {:<28} {:<24} verdict", "the provider refuses", "target", "result");
    let mut is_met = true;
    for case in governor::cases() {
        let all: Vec<_> = (0..SEEDS).map(|seed| case.measure(seed, Instant::now())).collect();
        let worst = all.iter().find(|measured| !measured.is_met).unwrap_or(&all[0]);
        let met = all.iter().filter(|measured| measured.is_met).count();
        let verdict = format!("{met} of {}", all.len());
        println!("{:<44} {:<28} {:<24} {verdict}", case.name, worst.target, worst.result);
        is_met &= met + 2 >= all.len();
    }
    if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
