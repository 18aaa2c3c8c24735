//! The targets of the governor: limits are used, and noise costs no more than itself.

use super::*;

const S: Duration = Duration::from_secs(1);

/// What every case of the table must come to; `cargo bench --bench governor` prints the same table. A question
/// may be answered wrongly by chance, so two of ten seeds may miss.
#[test]
fn limits_are_used_and_noise_costs_no_more_than_itself() {
    let mut missed = Vec::new();
    for case in cases() {
        let all = (0..10).map(|seed| case.measure(seed, Instant::now()));
        let bad: Vec<_> = all.filter(|measured| !measured.is_met).collect();
        if bad.len() > 2 {
            missed.push(format!("{}: {bad:?}", case.name));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn a_shared_limit_is_used_and_fair() {
    let all =
        [5, 40, 900].map(Duration::from_millis).map(|latency| [(latency, 0.0), (latency, 0.25)]);
    for (latency, spread) in all.into_iter().flatten() {
        for (retry_after, headers) in [(Some(S), false), (None, false), (Some(S), true)] {
            let scene = Scene {
                retry_after,
                headers,
                latency,
                spread,
                head: Duration::from_millis(2),
                think: Duration::ZERO,
                agents: 32,
                max_concurrency: 32,
                ..Scene::of(Refuses::Window(10, S))
            };
            let played = play(scene, 1, Instant::now());
            let case = format!("{retry_after:?} {headers} {latency:?} {:?}", played.seconds);
            // Slow replies and a pause that says little of the limit: it takes a while to find.
            let from = if latency == S - S / 10 { 20 } else { 0 };
            assert!(played.pace(from) >= 9.0, "{}: {case}", played.pace(from));
            let crowded = played.seconds[2..].iter().filter(|(_, refused)| *refused > 1).count();
            // Two calls that are late may meet in one window.
            assert!(played.most_refused(2) <= 2 && crowded <= usize::from(spread > 0.0), "{case}");
            assert!(played.refused() <= 20, "{case}");
            let (most, least) = (played.served.iter().max(), played.served.iter().min());
            let (most, least) = (most.copied().unwrap_or(0), least.copied().unwrap_or(0));
            assert!(f64::from(most) < 1.5 * f64::from(least), "{most} to {least}: {case}");
        }
    }
}
