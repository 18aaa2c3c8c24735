//! Plays seeds: the same ones in `cargo test`, and others in a trial that is ignored by default.

use super::{MOST_DEATHS, check, play, simulate, told};

/// Seeds in `cargo test`.
const SEEDS: u64 = 200;

/// Returns a number of the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number")))
}

#[test]
fn whatever_happens_to_its_processes_a_run_comes_to_the_same_end() {
    let (deaths, met) = simulate(0..SEEDS);
    assert!(u64::from(deaths) > 2 * SEEDS, "{deaths} deaths");
    let expected = [
        "a death amid a summary",
        "a snapshot",
        "a wait for a person",
        "an unknown effect",
        "compaction.finished",
        "context.edited",
        "gateway.parked",
        "model.failed",
    ];
    for expected in expected {
        assert!(met.contains(expected), "{expected}: {met:?}");
    }
}

#[test]
fn a_seed_tells_one_story() {
    let seed = number("CALLSHEET_SEED").unwrap_or(7);
    let plays = [play(seed, MOST_DEATHS), play(seed, MOST_DEATHS)];
    let [one, other] = plays.each_ref().map(|played| told(&played.records));
    println!("{one}{} deaths", plays[0].deaths);
    check(&plays[0], &play(seed, 0));
    assert_eq!(one, other);
}

#[test]
#[ignore = "takes twenty minutes: 10,000 seeds, or as many as CALLSHEET_SEEDS says, other ones each time"]
fn seeds_that_nobody_has_seen() {
    let first = fastrand::u64(..u64::MAX / 2);
    let count = number("CALLSHEET_SEEDS").unwrap_or(10_000);
    let (deaths, met) = simulate(first..first + count);
    println!("found: {deaths} deaths in {count} runs from seed {first} on");
    println!("{met:?}");
}
