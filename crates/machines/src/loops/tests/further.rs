//! Further families, made to mislead the rules: loops that look like work, and work that looks like a loop.

use super::*;

/// The families that go in circles.
const CIRCLES: [Family; 12] = [
    ("errors with ids of requests", |_| {
        Box::new(|dice, _| {
            let id = format!("{:08x}-{:04x}", dice.roll(u64::from(u32::MAX)), dice.roll(65_536));
            let said = format!(r#"{{"error":"quota is used up","request_id":"{id}"}}"#);
            vec![one(done("bash", "curl -s api/items", said))]
        })
    }),
    ("pauses that grow", |variant| {
        Box::new(move |_, n| {
            let pause = 5 + n * (1 + variant as usize);
            vec![one(done("bash", format!("sleep {pause}; make status"), "not ready"))]
        })
    }),
    ("spaced by pauses", |_| {
        Box::new(|dice, _| {
            let pause = format!("sleep {}", 10 + dice.roll(90));
            vec![one(done("bash", pause, "(no output)")), one(done("status", "job", "queued"))]
        })
    }),
    ("arguments in another form", |_| {
        Box::new(|dice, _| {
            let path = ["src/a.rs", "./src/a.rs", " src/a.rs\n"][dice.roll(3) as usize];
            vec![one(done("read_file", path, "fn main() {}"))]
        })
    }),
    ("a test that is run again without an edit", |_| {
        Box::new(|dice, _| {
            let said =
                format!("FAIL tests::one ({} ms)\n2 failed in {}.5s", dice.roll(900), dice.roll(9));
            vec![one(failed("bash", "cargo test", said))]
        })
    }),
    ("a cycle of failures", |variant| {
        let length = 2 + variant as usize % 5;
        Box::new(move |dice, n| {
            let step = n % length;
            let said = format!("pid {}: step {step} is not set up", dice.roll(9_999));
            vec![one(failed("bash", format!("./step{step}.sh"), said))]
        })
    }),
    ("edits that a command takes back", |_| {
        Box::new(|_, _| {
            let back = done("bash", "git checkout src/x.rs", "(no output)");
            vec![one(edited("src/x.rs", "a", "b")), one(back)]
        })
    }),
    ("jobs that fail alike", |_| {
        Box::new(|dice, n| {
            let result = format!(
                r#"{{"status":"failed","agent":"job/helper-{n}","error":"timeout: after {}s","text":"part {n}"}}"#,
                dice.roll(99)
            );
            vec![one(done("delegate", "find it", result))]
        })
    }),
    ("equal calls at once, in each turn", |variant| {
        Box::new(move |_, _| {
            vec![Act::Calls(vec![done("search", "q", "an item"); 2 + variant as usize % 5])]
        })
    }),
    ("two jobs in turn, with known files between", |_| {
        Box::new(|dice, n| {
            let job = ["left", "right"][n % 2];
            let which = dice.roll(3);
            vec![
                one(done("delegate", job, r#"{"status":"completed","text":"nothing"}"#)),
                one(done("read_file", format!("f{which}"), format!("c{which}"))),
            ]
        })
    }),
    ("silent work between checks that fail alike", |_| {
        Box::new(|_, n| {
            let work = done("bash", format!("sed -i s/a/{n}/ x"), "(no output)");
            vec![one(work), Act::Refused("check 1 failed: no file out.md".to_owned())]
        })
    }),
    ("a silent command", |_| Box::new(|_, _| vec![one(done("bash", "touch done", "(no output)"))])),
];

/// The families that only look so.
const PLAIN: [Family; 14] = [
    ("a log that grows", |_| {
        Box::new(|_, n| vec![one(done("bash", "wc -l log", format!("{} log", 40 + n)))])
    }),
    ("one file by offsets", |_| {
        Box::new(|_, n| {
            let call = format!("big.txt offset {} limit 100", n * 100);
            vec![one(done("read_file", call, format!("line {}", n * 100)))]
        })
    }),
    ("many files with one long text", |_| {
        Box::new(|_, n| vec![one(done("read_file", format!("f{n}"), "a licence ".repeat(90)))])
    }),
    ("one file, many edits", |_| {
        Box::new(|_, n| vec![one(edited("a.rs", &format!("v{n}"), &format!("v{}", n + 1)))])
    }),
    ("the same failure after each edit", |_| {
        Box::new(|_, n| {
            let edit = edited("a.rs", &format!("v{n}"), &format!("v{}", n + 1));
            vec![one(edit), one(failed("bash", "make test", "2 failed: tests::one, tests::two"))]
        })
    }),
    ("the same failure after each silent edit", |_| {
        Box::new(|_, n| {
            let edit = done("bash", format!("sed -i s/a/{n}/ a.rs"), "(no output)");
            vec![one(edit), one(failed("bash", "make test", "2 failed: tests::one, tests::two"))]
        })
    }),
    ("a test that passes now and then", |_| {
        Box::new(|dice, n| {
            let mut acts = vec![one(edited("a.rs", &format!("v{n}"), &format!("v{}", n + 1)))];
            acts.push(one(done("bash", "make test", "ok")));
            acts.push(one(failed("bash", "make test", "1 failed: tests::race")));
            for _ in 0..dice.roll(5) {
                acts.push(match dice.roll(2) {
                    0 => one(done("bash", "make test", "ok")),
                    _ => one(failed("bash", "make test", "1 failed: tests::race")),
                });
            }
            acts
        })
    }),
    ("a build that moves on", |variant| {
        let each = 1 + variant as usize % 3;
        Box::new(move |dice, n| {
            let said = format!("{} step {} of 90", stamp(dice), n / each);
            vec![one(done("bash", "./ci status", said))]
        })
    }),
    ("commits", |_| {
        Box::new(|dice, n| {
            let commit = format!("[main {:07x}] part {n}", dice.roll(0x0fff_ffff));
            vec![
                one(edited(&format!("f{n}"), "", "x")),
                one(done("bash", format!("git commit -am 'part {n}'"), commit)),
                one(done("bash", "git status", "nothing to commit")),
            ]
        })
    }),
    ("jobs with ids", |_| {
        Box::new(|dice, _| {
            let job = format!("{:08x}-{:04x}", dice.roll(u64::from(u32::MAX)), dice.roll(65_536));
            let ask = |said: String| one(done("status", job.as_str(), said));
            vec![
                one(done("launch", "suite", format!("job {job}"))),
                ask("running".to_owned()),
                ask("running".to_owned()),
                ask(format!("{job}: done")),
            ]
        })
    }),
    ("silent commands", |_| {
        Box::new(|_, n| vec![one(done("bash", format!("git mv a{n} b{n}"), "(no output)"))])
    }),
    ("a fan-out of other jobs", |_| {
        Box::new(|_, n| {
            let jobs = (0..4).map(|k| {
                let result = r#"{"status":"completed","text":"done"}"#;
                done("delegate", format!("part {n} {k}"), result)
            });
            vec![Act::Calls(jobs.collect())]
        })
    }),
    ("errors of one kind with other words", |_| {
        Box::new(|_, n| {
            let fix = edited("a.rs", &format!("v{n}"), &format!("v{}", n + 1));
            let said = format!("error: cannot find value `x{n}` in this scope");
            vec![one(failed("bash", "cargo check", said)), one(fix)]
        })
    }),
    ("a person between equal looks", |_| {
        Box::new(|_, _| {
            let look = one(done("read_file", "plan.md", "the plan"));
            vec![look.clone(), look, Act::Compacted, Act::Spoken]
        })
    }),
];

#[test]
fn who_goes_in_circles_in_disguise_is_stopped() {
    assert_eq!(played(&CIRCLES, 60, |watched| !watched.is_broken()), [], "not stopped");
}

#[test]
fn who_works_in_an_odd_way_is_left_alone() {
    let told = played(&PLAIN, 200, |watched| !watched.steps.is_empty());
    // A test that passes now and then may well fail four times in a row.
    let is_stopped = |(_, _, steps): &Taken| steps.len() > 1;
    assert!(told.len() * 100 <= PLAIN.len() * 20 && !told.iter().any(is_stopped), "{told:?}");
}

#[test]
fn builds_after_patches_by_commands_are_no_loop() {
    for is_error in [false, true] {
        let watched = play(&spec(), 100, 1, &|_, n| {
            let build = Done { is_error, ..done("bash", "make", "the build ended") };
            vec![one(done("bash", format!("./patch {n}"), format!("patched {n}"))), one(build)]
        });
        assert_eq!(watched.steps, []);
    }
}
