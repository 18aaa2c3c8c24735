//! Families of agents that go in circles, and of agents that only look so, each in many variants.

mod further;

use proptest::prelude::*;

use super::*;
use crate::message::{Json, ToolCall};
use crate::spec::loops::{LoopTool, OnLoop};
use crate::turn::Prints;

/// Numbers that look random and are the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// What an agent does in a turn, or what happens between its turns.
#[derive(Clone, Debug)]
enum Act {
    Calls(Vec<Done>),
    Compacted,
    Spoken,
    Refused(String),
    Cut(&'static str),
}

/// A call with its result.
#[derive(Clone, Debug)]
struct Done {
    tool: &'static str,
    input: String,
    result: String,
    is_error: bool,
    written: Option<(String, String, String)>,
}

fn done(tool: &'static str, input: impl Into<String>, result: impl Into<String>) -> Done {
    let (input, result, is_error, written) = (input.into(), result.into(), false, None);
    Done { tool, input, result, is_error, written }
}

fn failed(tool: &'static str, input: impl Into<String>, error: impl Into<String>) -> Done {
    Done { is_error: true, ..done(tool, input, error) }
}

fn edited(path: &str, pre: &str, post: &str) -> Done {
    let input = format!("{path} {pre} {post}");
    let written = Some((path.to_owned(), pre.to_owned(), post.to_owned()));
    Done { written, ..done("edit_file", input, "The file was changed.") }
}

fn one(call: Done) -> Act {
    Act::Calls(vec![call])
}

impl Done {
    fn ended(&self, spec: &LoopSpec) -> Option<Ended> {
        let input = match self.tool {
            "delegate" => serde_json::json!({ "agent": "helper", "prompt": self.input }),
            _ => serde_json::json!({ "argument": self.input }),
        };
        let (id, name) = ("c".to_owned(), self.tool.to_owned());
        let call = ToolCall { id, name, input: Json::encode(&input) };
        let keys = spec.keys_of(self.tool)?;
        let written = self.written.as_ref().map(|(path, pre, post)| Written {
            path: Fingerprint::of_text(path),
            pre: Some(Fingerprint::of_text(pre)),
            post: Fingerprint::of_text(post),
        });
        Some(Ended {
            tool: self.tool.into(),
            prints: Prints::of(&call, keys, &self.result, self.is_error),
            is_error: self.is_error,
            may_change: self.tool == "bash",
            delegates: self.tool == "delegate",
            written,
        })
    }
}

/// An agent that is watched.
#[derive(Clone, Debug)]
struct Watched {
    spec: Arc<LoopSpec>,
    loops: Loops,
    turn: u32,
    steps: Vec<(u32, Step, LoopRule)>,
    /// What was recorded, to fold it once more.
    records: Vec<Recorded>,
}

#[derive(Clone, Debug)]
enum Recorded {
    Turn,
    Calls(Vec<Ended>),
    Compacted,
    Spoken,
    Refused(Fingerprint),
    Cut(Fingerprint),
    Step(Step, Circle),
}

impl Watched {
    fn new(spec: LoopSpec) -> Self {
        let spec = Arc::new(spec);
        let (loops, steps, records) = (Loops::new(spec.clone()), Vec::new(), Vec::new());
        Self { spec, loops, turn: 0, steps, records }
    }

    fn apply(&mut self, recorded: Recorded) {
        match &recorded {
            Recorded::Turn => {
                self.turn += 1;
                self.loops.turn_started();
            }
            Recorded::Calls(calls) => self.loops.turn_ended(self.turn, calls.clone()),
            Recorded::Compacted => self.loops.compacted(),
            Recorded::Spoken => self.loops.person_spoke(),
            Recorded::Refused(reason) => self.loops.refused(self.turn, *reason),
            Recorded::Cut(text) => self.loops.cut(self.turn, *text),
            Recorded::Step(step, circle) => self.loops.stepped(self.turn, *step, circle),
        }
        self.records.push(recorded);
    }

    /// Folds all records into a new state, as after a kill.
    fn folded(&self) -> Self {
        let mut again = Self::new((*self.spec).clone());
        self.records.iter().for_each(|recorded| again.apply(recorded.clone()));
        again
    }

    /// Does what the agent does next; returns false once it must end.
    fn act(&mut self, act: &Act) -> bool {
        match act {
            Act::Compacted => self.apply(Recorded::Compacted),
            Act::Spoken => self.apply(Recorded::Spoken),
            Act::Calls(calls) => {
                self.apply(Recorded::Turn);
                let ended = calls.iter().filter_map(|call| call.ended(&self.spec)).collect();
                self.apply(Recorded::Calls(ended));
            }
            Act::Refused(reason) => {
                self.apply(Recorded::Turn);
                self.apply(Recorded::Refused(Fingerprint::of_result(reason)));
            }
            Act::Cut(text) => {
                self.apply(Recorded::Turn);
                self.apply(Recorded::Cut(Fingerprint::of_text(text)));
            }
        }
        if let Some(Due { step, circle }) = self.loops.due().cloned() {
            self.steps.push((self.turn, step, circle.rule));
            self.apply(Recorded::Step(step, circle));
        }
        if self.loops.holds() {
            // A turn without tools.
            self.apply(Recorded::Turn);
        }
        !self.is_broken()
    }

    fn is_broken(&self) -> bool {
        matches!(self.steps.last(), Some((_, Step::Break, _)))
    }
}

/// Plays a family; some agents are killed, which must change nothing.
fn play(
    spec: &LoopSpec,
    turns: usize,
    seed: u64,
    family: &dyn Fn(&mut Dice, usize) -> Vec<Act>,
) -> Watched {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9).wrapping_add(7));
    let mut kills = Dice(seed);
    let mut watched = Watched::new(spec.clone());
    for n in 0..turns {
        for act in family(&mut dice, n) {
            if kills.roll(40) == 0 {
                let again = watched.folded();
                assert_eq!(format!("{:?}", again.loops), format!("{:?}", watched.loops));
                watched.loops = again.loops;
            }
            if !watched.act(&act) {
                return watched;
            }
        }
    }
    watched
}

fn stamp(dice: &mut Dice) -> String {
    let (hour, minute, second) = (dice.roll(24), dice.roll(60), dice.roll(60));
    format!(
        "2026-11-24T{hour:02}:{minute:02}:{second:02}Z took {}.{}s pid {}",
        dice.roll(9),
        dice.roll(99),
        100 + dice.roll(900)
    )
}

type Family = (&'static str, fn(u64) -> Box<dyn Fn(&mut Dice, usize) -> Vec<Act>>);

/// The families that go in circles. The argument is the variant.
const CIRCLES: [Family; 15] = [
    ("the same call", |_| Box::new(|_, _| vec![one(done("grep", "x", "a line"))])),
    ("with time stamps", |_| {
        Box::new(|dice, _| {
            let at = stamp(dice);
            vec![one(done("bash", "make test", format!("{at} 3 tests failed")))]
        })
    }),
    ("with known tools between", |variant| {
        Box::new(move |dice, n| {
            let between = (0..=variant % 4).map(|_| {
                let which = dice.roll(4);
                one(done("read_file", format!("f{which}"), format!("content of {which}")))
            });
            let mut acts: Vec<_> = between.collect();
            acts.push(one(done("grep", "x", "a line")));
            if n % 3 == 0 {
                acts.insert(0, Act::Compacted);
            }
            acts
        })
    }),
    ("with news between", |variant| {
        Box::new(move |dice, n| {
            let between = (0..=variant % 3).map(|k| {
                let news = format!("news {} {}", n * 10 + k as usize, dice.roll(1_000_000));
                one(done("bash", format!("cat part{n}-{k}"), news))
            });
            let mut acts: Vec<_> = between.collect();
            acts.push(one(done("grep", "x", "a line")));
            acts
        })
    }),
    ("a cycle", |variant| {
        let length = 2 + variant as usize % 5;
        Box::new(move |_, n| {
            let at = n % length;
            vec![one(done("bash", format!("step {at}"), format!("result {at}")))]
        })
    }),
    ("edits back and forth", |variant| {
        Box::new(move |dice, n| {
            let (pre, post) = if n % 2 == 0 { ("a", "b") } else { ("b", "a") };
            let test = done("bash", "make test", format!("{} failed", stamp(dice)));
            let mut acts = vec![one(edited("src/x.rs", pre, post))];
            if variant % 2 == 0 {
                acts.push(one(test));
            }
            acts
        })
    }),
    ("many known calls in any order", |variant| {
        Box::new(move |dice, _| {
            let which = dice.roll(7 + variant % 6);
            vec![one(done("bash", format!("show {which}"), format!("shown {which}")))]
        })
    }),
    ("the same job again", |variant| {
        Box::new(move |dice, n| {
            let jobs = (0..1 + variant % 8).map(|job| {
                let (turns, usage) = (dice.roll(50), dice.roll(9_999));
                let result = format!(
                    r#"{{"status":"completed","agent":"job/helper-{n}{job}","error":null,"text":"no result for {job}","turns":{turns},"usage":{{"input":{usage}}}}}"#
                );
                done("delegate", format!("find part {job}"), result)
            });
            vec![Act::Calls(jobs.collect())]
        })
    }),
    ("one error over many arguments", |_| {
        Box::new(|dice, n| {
            let path = format!("dir{}/file{n}.txt", dice.roll(99));
            vec![one(failed("read_file", path.as_str(), format!("Permission denied: {path}")))]
        })
    }),
    ("compacted and read again", |variant| {
        let files = 3 + variant as usize % 16;
        Box::new(move |_, n| {
            let at = n % files;
            let mut acts = if at == 0 { vec![Act::Compacted] } else { Vec::new() };
            acts.push(one(done("read_file", format!("f{at}"), format!("content {at}"))));
            acts
        })
    }),
    ("a check that fails alike", |_| {
        Box::new(|dice, n| {
            let work = one(done("bash", format!("try {n}"), format!("tried {n}")));
            vec![work, Act::Refused(format!("check 1 failed: 2 tests in {}ms", dice.roll(999)))]
        })
    }),
    ("texts that repeat", |_| Box::new(|_, _| vec![Act::Cut("I will do it now. ")])),
    ("nothing is ever found", |_| {
        Box::new(|_, n| vec![one(done("grep", format!("word{n}"), "No matches found"))])
    }),
    ("a network that stays away", |_| {
        Box::new(|_, _| vec![one(failed("fetch", "x", "Error: connection refused"))])
    }),
    ("denied again and again", |variant| {
        Box::new(move |_, n| {
            let other = one(done("read_file", format!("f{}", n % 3), format!("c{}", n % 3)));
            let denied = one(failed("bash", "rm x", "Denied by a rule: bash(rm *)"));
            if variant % 2 == 0 { vec![denied] } else { vec![denied, other] }
        })
    }),
];

/// The families that only look so.
const PLAIN: [Family; 17] = [
    ("polling that moves", |variant| {
        let step = 1 + variant as usize % 3;
        Box::new(move |dice, n| {
            vec![one(done("status", "job", format!("{} {} % done", stamp(dice), n * step)))]
        })
    }),
    ("a tool that polls", |_| Box::new(|_, _| vec![one(done("wait_for", "job", "running"))])),
    ("reading after edits", |_| {
        Box::new(|_, n| {
            let (pre, post) = (format!("v{n}"), format!("v{}", n + 1));
            vec![
                one(edited("a.rs", &pre, &post)),
                one(done("read_file", "a.rs", post)),
                one(done("bash", "ls", "a.rs\nb.rs")),
            ]
        })
    }),
    ("tests whose failures change", |_| {
        Box::new(|_, n| {
            vec![
                one(edited("a.rs", &format!("{n}"), &format!("{}", n + 1))),
                one(failed("bash", "make test", format!("assertion failed: left {n}"))),
            ]
        })
    }),
    ("pages", |_| {
        Box::new(|_, n| vec![one(done("list", format!("page {n}"), format!("items of page {n}")))])
    }),
    ("files with the same content", |_| {
        Box::new(|_, n| vec![one(done("read_file", format!("f{n}.txt"), "the same licence"))])
    }),
    ("attached thrice", |_| {
        Box::new(|_, n| match n {
            0..3 => vec![one(done("attach", "report.pdf", "attached"))],
            _ => vec![one(done("read_file", format!("f{n}"), format!("c{n}")))],
        })
    }),
    ("equal lists after work elsewhere", |_| {
        Box::new(|dice, n| {
            let file = format!("src/{}.rs", dice.roll(3));
            vec![
                one(edited(&file, &format!("{n}"), &format!("{n}'"))),
                one(done("bash", "ls", "src\ntests")),
            ]
        })
    }),
    ("a heartbeat beside work", |variant| {
        Box::new(move |_, n| {
            let work = (0..4 + variant % 3)
                .map(|k| one(done("bash", format!("work {n} {k}"), format!("did {n} {k}"))));
            let mut acts: Vec<_> = work.collect();
            acts.push(one(done("heartbeat", "", "ok")));
            acts
        })
    }),
    ("a network that comes back", |variant| {
        Box::new(move |_, n| match n as u64 {
            n if n <= 2 + variant % 4 => {
                vec![one(failed("fetch", "x", "Error: connection timed out"))]
            }
            _ => vec![one(done("fetch", format!("x{n}"), format!("page {n}")))],
        })
    }),
    ("equal calls at once", |_| {
        Box::new(|_, n| match n {
            0..2 => vec![Act::Calls(vec![done("vote", "q", "yes"); 8])],
            _ => vec![one(done("read_file", format!("f{n}"), format!("c{n}")))],
        })
    }),
    ("a person who speaks", |_| {
        Box::new(|_, _| {
            let look = one(done("bash", "make", "ok"));
            vec![look.clone(), look.clone(), look, Act::Spoken]
        })
    }),
    ("a few names that are free", |variant| {
        Box::new(move |_, n| match n as u64 {
            n if n < 3 + variant % 5 => {
                vec![one(failed("check", format!("name{n}"), format!("no such user: name{n}")))]
            }
            _ => vec![one(done("read_file", format!("f{n}"), format!("c{n}")))],
        })
    }),
    ("launch and poll", |_| {
        Box::new(|_, n| {
            vec![
                one(done("launch", "suite", format!("started job {n}"))),
                one(done("status", format!("job {n}"), "running")),
                one(done("status", format!("job {n}"), "running")),
                one(done("status", format!("job {n}"), format!("done: {n} passed"))),
            ]
        })
    }),
    ("rows that are all accepted", |_| {
        Box::new(|_, n| vec![one(done("insert", format!("row {n}"), "ok"))])
    }),
    ("a word that is in few files", |_| {
        Box::new(|dice, n| {
            let word = format!("word{n}");
            match dice.roll(3) {
                0 => vec![one(done("grep", word, format!("f{n}: here")))],
                _ => vec![one(done("grep", word, "No matches found"))],
            }
        })
    }),
    ("answers that fail in other ways", |_| {
        Box::new(|_, n| vec![Act::Refused(format!("check 1 failed: {n} of 90 tests"))])
    }),
];

fn spec() -> LoopSpec {
    let poll = LoopTool { poll: true, key: Vec::new() };
    let tools = [(crate::id::Name::new("wait_for").expect("a name"), poll)].into();
    LoopSpec { tools, ..LoopSpec::default() }
}

/// A family, its variant, and the steps that were taken against it.
type Taken = (&'static str, u64, Vec<(u32, Step, LoopRule)>);

/// Plays each family in twenty variants of so many turns. Returns those of which `picks` is true.
fn played(families: &[Family], turns: usize, picks: impl Fn(&Watched) -> bool) -> Vec<Taken> {
    let mut picked = Vec::new();
    for (name, family) in families {
        for variant in 0..20 {
            let watched = play(&spec(), turns, variant, &*family(variant));
            if picks(&watched) {
                picked.push((*name, variant, watched.steps.clone()));
            }
        }
    }
    picked
}

#[test]
fn who_goes_in_circles_is_stopped() {
    assert_eq!(played(&CIRCLES, 60, |watched| !watched.is_broken()), [], "not stopped");
}

#[test]
fn who_only_looks_so_is_left_alone() {
    assert_eq!(played(&PLAIN, 200, |watched| !watched.steps.is_empty()), [], "noticed");
}

#[test]
fn equal_calls_end_within_eight() {
    let watched = play(&spec(), 60, 1, &|_, _| vec![one(done("read_file", "x", "y"))]);
    let steps: Vec<_> = watched.steps.iter().map(|(turn, step, _)| (*turn, *step)).collect();
    // The sixth turn has no tools, and the eighth hands over.
    assert_eq!(steps, [(4, Step::Notice), (5, Step::Hold), (7, Step::Break)]);
}

#[test]
fn steps_are_those_of_the_settings() {
    let same: fn(&mut Dice, usize) -> Vec<Act> = |_, _| vec![one(done("read_file", "x", "y"))];
    let steps = |spec: LoopSpec| {
        let watched = play(&spec, 60, 3, &same);
        watched.steps.iter().map(|(_, step, _)| *step).collect::<Vec<_>>()
    };
    use Step::{Break, Hold, Notice};
    assert_eq!(steps(spec()), [Notice, Hold, Break]);
    let nudge = LoopSpec { on_loop: OnLoop::Nudge, ..spec() };
    assert!(steps(nudge).iter().all(|step| *step == Notice));
    assert_eq!(steps(LoopSpec { on_loop: OnLoop::Off, ..spec() }), []);
    let patient = LoopSpec { repeat: [50, 55, 59], cycle: 99, stall: 99, ..spec() };
    assert_eq!(steps(patient), [Notice, Hold, Break]);
}

#[test]
fn an_agent_that_finds_its_way_goes_on() {
    // It looks four times, is told, and works from then on; much later it looks once more.
    let watched = play(&spec(), 200, 5, &|_, n| match n {
        0..4 | 100 | 150 => vec![one(done("bash", "ls", "a"))],
        _ => vec![one(done("read_file", format!("f{n}"), format!("c{n}")))],
    });
    let steps: Vec<_> = watched.steps.iter().map(|(_, step, _)| *step).collect();
    assert_eq!(steps, [Step::Notice]);
}

#[test]
fn a_call_takes_less_than_two_hundred_bytes() {
    let known = (2 * memory::REMEMBERED + memory::CONTENTS) * size_of::<Fingerprint>();
    let most = size_of::<memory::Fact>() + known;
    assert!(most <= 200, "{most}");
    let watched = play(&spec(), 5_000, 5, &|_, n| {
        vec![one(done("read_file", format!("f{n}"), format!("c{n}")))]
    });
    assert!(format!("{:?}", watched.loops).len() < 200_000, "it stays bounded");
}

/// Conversations that were recorded elsewhere, in the Anthropic wire format. Nobody speaks in them for this test, so
/// that one task after the other counts as one.
#[test]
#[ignore = "needs the folder with the recordings in CALLSHEET_RECORDINGS; takes seconds"]
fn recorded_agents_are_not_stopped() {
    let folder = std::env::var("CALLSHEET_RECORDINGS").expect("a folder");
    let files =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("one").path());
    for file in files.filter(|file| file.extension().is_some_and(|end| end == "json")) {
        let text = std::fs::read_to_string(&file).expect("a file");
        let recording: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let mut watched = Watched::new(spec());
        let (mut calls, mut turns) = (std::collections::HashMap::new(), 0);
        for message in recording["messages"].as_array().into_iter().flatten() {
            let blocks = message["content"].as_array().cloned().unwrap_or_default();
            let mut ended = Vec::new();
            for block in &blocks {
                match block["type"].as_str() {
                    Some("tool_use") => {
                        calls.insert(block["id"].clone(), block.clone());
                    }
                    Some("tool_result") => {
                        let made = &calls[&block["tool_use_id"]];
                        let name = made["name"].as_str().expect("a name").to_owned();
                        let result = match &block["content"] {
                            serde_json::Value::String(text) => text.clone(),
                            other => other.to_string(),
                        };
                        let is_error = block["is_error"] == true;
                        let (id, input) = ("c".to_owned(), Json::encode(&made["input"]));
                        let tool: Arc<str> = name.as_str().into();
                        let call = ToolCall { id, name, input };
                        let prints = Prints::of(&call, &[], &result, is_error);
                        ended.push(Ended {
                            tool,
                            prints,
                            is_error,
                            may_change: call.name == "Bash",
                            delegates: false,
                            written: None,
                        });
                    }
                    _ => {}
                }
            }
            if ended.is_empty() {
                continue;
            }
            turns += 1;
            watched.apply(Recorded::Turn);
            watched.apply(Recorded::Calls(ended));
            if let Some(Due { step, circle }) = watched.loops.due().cloned() {
                println!("{}: turn {}: {step:?}: {}", file.display(), watched.turn, circle.words());
                watched.steps.push((watched.turn, step, circle.rule));
                watched.apply(Recorded::Step(step, circle));
            }
        }
        println!("{}: {turns} turns, {:?}", file.display(), watched.steps);
        assert!(!watched.is_broken(), "{}", file.display());
    }
}

fn act() -> impl Strategy<Value = Act> {
    let call = (0..4_u8, 0..3_u8, any::<bool>()).prop_map(|(call, result, is_error)| {
        let done = done("bash", format!("call {call}"), format!("result {result}"));
        Done { is_error, ..done }
    });
    let edit = (0..2_u8, 0..3_u8, 0..3_u8).prop_map(|(path, pre, post)| {
        edited(&path.to_string(), &pre.to_string(), &post.to_string())
    });
    prop_oneof![
        8 => prop::collection::vec(prop_oneof![4 => call, 1 => edit], 1..4).prop_map(Act::Calls),
        1 => Just(Act::Compacted),
        1 => Just(Act::Spoken),
        1 => (0..2_u8).prop_map(|n| Act::Refused(n.to_string())),
        1 => Just(Act::Cut("x")),
    ]
}

proptest! {
    /// What is found does not depend on where a process ended, nor on what it had forgotten.
    #[test]
    fn a_fold_after_any_kill_finds_the_same(
        acts in prop::collection::vec(act(), 1..80), kill in 0..80_usize,
    ) {
        let mut whole = Watched::new(spec());
        let mut killed = Watched::new(spec());
        for (n, act) in acts.iter().enumerate() {
            if n == kill % acts.len() {
                let steps = killed.steps.clone();
                killed = Watched { steps, ..killed.folded() };
            }
            let goes_on = whole.act(act);
            prop_assert_eq!(killed.act(act), goes_on);
            prop_assert_eq!(format!("{:?}", killed.loops), format!("{:?}", whole.loops));
            prop_assert_eq!(&killed.steps, &whole.steps);
            if !goes_on {
                break;
            }
        }
    }

    /// A compaction says nothing of calls: without the rule for it, the same is found with and without any.
    #[test]
    fn compactions_change_no_other_finding(acts in prop::collection::vec(act(), 1..60)) {
        let (mut with, mut without) = (Watched::new(spec()), Watched::new(spec()));
        let is_compaction = |(_, _, rule): &(u32, Step, LoopRule)| *rule == LoopRule::Compaction;
        for act in &acts {
            let goes_on = with.act(act);
            if !matches!(act, Act::Compacted) {
                prop_assert_eq!(without.act(act), goes_on);
            }
            if !goes_on || with.steps.iter().any(is_compaction) {
                break;
            }
            prop_assert_eq!(&with.steps, &without.steps);
        }
    }
}
