//! An agent that works on a project: it looks, changes, tests and reports, goal after goal.

use fastrand::Rng;

use super::grammar::{chance, say, size};
use super::hands::{Act, Hands};
use super::outputs::{self, Suite};
use super::project::{File, Language, Project};
use super::talk::{Call, Talk};

/// One thing to bring about: tests of a file pass when its defects are gone.
#[derive(Debug)]
struct Goal {
    file: usize,
    suite: Suite,
    defects: usize,
    is_verified: bool,
    /// A script that shows the defect: its path and lines.
    script: Option<(String, Vec<String>)>,
    /// First lines of what was read of the file.
    read: Vec<usize>,
}

/// An agent at work.
#[derive(Debug)]
pub(crate) struct Coder {
    pub(crate) rng: Rng,
    pub(crate) talk: Talk,
    pub(crate) project: Project,
    hands: Hands,
    goals: Vec<Goal>,
    /// Values that results gave.
    values: Vec<String>,
    /// Newest edits, by file.
    changed: Vec<(String, Vec<String>)>,
    todo: Vec<(String, &'static str)>,
}

impl Coder {
    pub(crate) fn new(mut rng: Rng, hands: Hands) -> Self {
        let (talk, project) = (Talk::new(&mut rng), Project::new(&mut rng));
        let (goals, values, changed, todo) = Default::default();
        Self { rng, talk, project, hands, goals, values, changed, todo }
    }

    /// Makes a sentence of this rule about the file of the newest goal; a value is one that was seen.
    pub(crate) fn sentence(&mut self, rule: &str) -> String {
        let goal = self.goals.last().map_or(0, |goal| goal.file);
        let (project, values) = (&self.project, &self.values);
        let places = |rng: &mut Rng, place: &str| {
            let old = if place == "value" { rng.choice(values).cloned() } else { None };
            old.or_else(|| project.place(rng, place, &project.files[goal]))
        };
        say(&mut self.rng, rule, &places)
    }

    /// Sets a new goal: a file, most often one that nobody worked on, and its tests.
    pub(crate) fn aim(&mut self) {
        let again = self.rng.choice(&self.goals).map(|goal| goal.file);
        let file = again.filter(|_| chance(&mut self.rng, 20));
        let file = file.unwrap_or_else(|| self.rng.usize(..self.project.files.len()));
        let suite = Suite::new(&mut self.rng, &self.project, &self.project.files[file]);
        let defects = self.rng.usize(1..5);
        self.goals.push(Goal {
            file,
            suite,
            defects,
            is_verified: false,
            script: None,
            read: vec![],
        });
    }

    /// Works on the newest goal for at most so many turns, or until there are that many tokens.
    pub(crate) fn work(&mut self, turns: usize, most_tokens: usize) {
        for turn in 0..turns {
            if self.talk.tokens() >= most_tokens {
                return;
            }
            let Some(goal) = self.goals.last() else { return };
            let (is_done, has_read) =
                (goal.defects == 0 && goal.is_verified, !goal.read.is_empty());
            if is_done {
                return self.close();
            }
            match self.rng.u8(..100) {
                _ if turn == 0 || !has_read => self.explore(),
                0..=17 => self.explore(),
                18..=27 => self.reproduce(),
                28..=57 => self.edit(),
                58..=86 => self.test(),
                87..=90 => self.write_test(),
                91..=94 => self.lint(),
                95..=97 => self.revisit(),
                _ => self.look_back(),
            }
        }
    }

    /// Keeps a list of what is to be done, with the newest goal at its end.
    pub(crate) fn plan(&mut self) {
        let new = (0..self.rng.usize(1..3)).map(|_| self.sentence("todo")).collect::<Vec<_>>();
        self.todo.iter_mut().for_each(|(_, status)| *status = "completed");
        self.todo.extend(new.into_iter().map(|text| (text, "pending")));
        if let Some(open) = self.todo.iter_mut().find(|(_, status)| *status == "pending") {
            open.1 = "in_progress";
        }
        let items = self.todo.clone();
        self.turn("decision", vec![Act::Todo { items }]);
    }

    /// Ends the request with a report, now and then with a question.
    pub(crate) fn report(&mut self) {
        let mut text = self.sentence("report");
        for _ in 0..self.rng.usize(..4) {
            let rule = if self.rng.bool() { "finding" } else { "decision" };
            text.push_str(&format!(
                "{}{}",
                if self.rng.bool() { " " } else { "\n- " },
                self.sentence(rule)
            ));
        }
        if chance(&mut self.rng, 25) {
            text.push_str(&format!("\n\n{}", self.sentence("question")));
        }
        self.talk.answer(&text);
    }

    /// Chooses a file: mostly that of the newest goal, now and then one of an earlier goal or any.
    fn file(&mut self) -> usize {
        let newest = self.goals.last().map_or(0, |goal| goal.file);
        match self.rng.u8(..10) {
            0 => self.rng.usize(..self.project.files.len()),
            1 => self.rng.choice(&self.goals).map_or(newest, |goal| goal.file),
            _ => newest,
        }
    }

    fn explore(&mut self) {
        let parallel = self.hands == Hands::Tools && chance(&mut self.rng, 45);
        let count = if parallel { self.rng.usize(2..5) } else { 1 };
        let mut acts = Vec::new();
        for _ in 0..count {
            let file = self.file();
            match self.rng.u8(..10) {
                0 => {
                    let path = &self.project.files[file].path;
                    let folder =
                        path.rsplit_once('/').map_or("src", |(folder, _)| folder).to_owned();
                    acts.push(Act::List { folder });
                }
                1..=3 => {
                    let name =
                        self.project.symbol_in(&mut self.rng, &self.project.files[file]).to_owned();
                    acts.push(Act::Find { name });
                }
                _ => acts.push(self.read(file)),
            }
        }
        let rule = if self.rng.bool() { "look" } else { "finding" };
        self.turn(rule, acts);
    }

    fn read(&mut self, file: usize) -> Act {
        let all = self.project.files[file].lines.len();
        let lines = size(&mut self.rng, 80.0, 300.0);
        let from = self.rng.usize(..all.saturating_sub(lines) + 1);
        let from = if lines >= all || chance(&mut self.rng, 30) { 0 } else { from };
        if let Some(goal) = self.goals.last_mut()
            && goal.file == file
        {
            goal.read.push(from);
        }
        Act::Read { file, from, lines }
    }

    /// Changes lines that were read, most likely those read last.
    fn edit(&mut self) {
        let Some(goal) = self.goals.last_mut() else { return };
        let (reads, place) = (goal.read.len(), goal.file);
        let from = goal.read[self.rng.usize(..reads).max(self.rng.usize(..reads))];
        let file = self.project.files[place].clone();
        let at = self.rng.usize(from.min(file.lines.len() - 1)..file.lines.len().min(from + 120));
        if chance(&mut self.rng, 8) && file.lines.len() < 120 {
            return self.rewrite(place);
        }
        let to = file.lines.len().min(at + self.rng.usize(1..7));
        let old = file.lines[at..to].to_vec();
        let mut new = old.clone();
        if old.len() == 1 && self.rng.bool() {
            new[0] = new[0].replace("None", "()").replace("id", "key") + " ";
        } else {
            let added =
                (0..self.rng.usize(1..8)).map(|_| self.project.statement(&mut self.rng, &file));
            new.extend(added);
            if self.rng.bool() {
                new.remove(0);
            }
        }
        let fails = chance(&mut self.rng, 6);
        let path = file.path.clone();
        let act = Act::Edit { path, at: (!fails).then_some(at), old, new: new.clone() };
        let mut acts = vec![act];
        if !fails {
            self.changed(&file.path, &new);
            self.project.files[place].lines.splice(at..to, new);
            if let Some(goal) = self.goals.last_mut() {
                goal.is_verified = false;
                goal.defects -= usize::from(goal.defects > 0 && self.rng.u8(..100) < 60);
            }
            if self.hands == Hands::Tools && chance(&mut self.rng, 20) {
                acts.push(self.run_tests());
            }
        }
        self.turn("doing", acts);
    }

    /// Writes a file anew, with a function more and others as they are.
    fn rewrite(&mut self, place: usize) {
        let mut file = self.project.files[place].clone();
        let symbol = self.project.new_symbol(&mut self.rng);
        file.symbols.push(symbol.clone());
        let added = self.project.function(&mut self.rng, &symbol, &file);
        file.lines.extend(added);
        let (path, lines) = (file.path.clone(), file.lines.clone());
        self.changed(&path, &lines);
        self.project.files[place] = file;
        self.turn("decision", vec![Act::Write { path, lines }]);
    }

    /// Adds tests: a file of its own.
    fn write_test(&mut self) {
        let Some(goal) = self.goals.last() else { return };
        let path = goal.suite.path.replace("test_", "test_more_").replace(".test.", ".more.test.");
        let file: File = self.project.files[goal.file].clone();
        let mut lines = Vec::new();
        for symbol in file.symbols.iter().take(3) {
            lines.push(self.project.import(&file.path, symbol));
        }
        for _ in 0..self.rng.usize(1..4) {
            let name = format!("test_{}", self.project.new_symbol(&mut self.rng));
            lines.extend(self.project.function(&mut self.rng, &name, &file));
        }
        self.changed(&path, &lines);
        self.turn("testing", vec![Act::Write { path, lines }]);
    }

    /// Writes a script that shows the defect and runs it; later changes a line of it and runs it again.
    fn reproduce(&mut self) {
        let Some(goal) = self.goals.last_mut() else { return };
        let (file, fails) = (self.project.files[goal.file].clone(), goal.defects > 0);
        let (script, run) = match self.project.language {
            Language::Python => ("scratch/try_{}.py", "python scratch/try_{}.py"),
            Language::Rust => ("examples/try_{}.rs", "cargo run --example try_{}"),
            Language::TypeScript => ("scratch/try-{}.ts", "npx tsx scratch/try-{}.ts"),
        };
        let symbol = self.project.symbol_in(&mut self.rng, &file).to_owned();
        let (path, mut lines) = goal.script.take().unwrap_or_else(|| {
            let first = self.project.import(&file.path, &symbol);
            (script.replace("{}", &symbol), vec![first])
        });
        if lines.len() == 1 {
            let more =
                (0..self.rng.usize(4..22)).map(|_| self.project.statement(&mut self.rng, &file));
            lines.extend(more.map(|line| line.trim().to_owned()));
        } else {
            let at = self.rng.usize(1..lines.len());
            lines[at] = self.project.statement(&mut self.rng, &file).trim().to_owned();
        }
        let stem = path.rsplit(['/']).next().unwrap_or_default();
        let name = stem.split('.').next().unwrap_or_default();
        let mut command = run.replace("try_{}", name).replace("try-{}", name);
        if let Some(value) = self.rng.choice(&self.values)
            && self.rng.u8(..4) == 0
        {
            command.push_str(&format!(" --seed {value}"));
        }
        goal.script = Some((path.clone(), lines.clone()));
        let output = outputs::script(&mut self.rng, &self.project, &file, fails);
        self.note_values(&output.0);
        self.changed(&path, &lines);
        self.turn("look", vec![Act::Write { path, lines }]);
        self.turn("testing", vec![Act::Run { command, output }]);
    }

    fn run_tests(&mut self) -> Act {
        let goal = self.goals.last_mut().expect("the agent has a goal");
        let file = &self.project.files[goal.file];
        goal.is_verified = goal.defects == 0;
        let output = goal.suite.run(&mut self.rng, &self.project, goal.defects, file);
        Act::Run { command: goal.suite.command.clone(), output }
    }

    fn test(&mut self) {
        let act = self.run_tests();
        let has_passed = self.goals.last().is_some_and(|goal| goal.is_verified);
        self.turn("testing", vec![act]);
        let rule = if has_passed { "passed" } else { "failed" };
        if self.rng.bool() {
            // What the result means is said with the next call.
            let file = self.file();
            let act = self.read(file);
            self.turn(rule, vec![act]);
        }
    }

    fn lint(&mut self) {
        let (file, broken) = (self.file(), chance(&mut self.rng, 35));
        let file = &self.project.files[file];
        let (command, output) = outputs::lint(&mut self.rng, &self.project, file, broken);
        self.note_values(&output.0);
        self.turn("testing", vec![Act::Run { command, output }]);
    }

    /// Runs the tests of an earlier goal again.
    fn revisit(&mut self) {
        let number = self.rng.usize(..self.goals.len());
        let goal = &self.goals[number];
        let failing = if chance(&mut self.rng, 15) { 1 } else { goal.defects };
        let file = &self.project.files[goal.file];
        let output = goal.suite.run(&mut self.rng, &self.project, failing, file);
        let command = goal.suite.command.clone();
        self.turn("testing", vec![Act::Run { command, output }]);
    }

    fn look_back(&mut self) {
        let (command, output) = outputs::history(&mut self.rng, &self.project, &self.changed);
        self.note_values(&output.0);
        self.turn("finding", vec![Act::Run { command, output }]);
    }

    /// Checks the whole and forgets what was changed.
    fn close(&mut self) {
        for _ in 0..self.rng.usize(..3) {
            match self.rng.u8(..3) {
                0 => self.lint(),
                1 => self.revisit(),
                _ => self.look_back(),
            }
        }
        self.changed.clear();
    }

    fn changed(&mut self, path: &str, lines: &[String]) {
        self.changed.retain(|(known, _)| known != path);
        self.changed.push((path.to_owned(), lines.to_vec()));
    }

    /// Remembers one or two of the values in a result, which a later call or sentence cites.
    fn note_values(&mut self, text: &str) {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric());
        let is_value = |word: &&str| word.len() >= 3 && word.chars().all(|c| c.is_ascii_digit());
        let found: Vec<_> = words.filter(is_value).collect();
        for _ in 0..self.rng.usize(..3) {
            self.values.extend(self.rng.choice(&found).map(|&value| value.to_owned()));
        }
    }

    /// Adds a turn that begins with sentences of this rule, or with none.
    fn turn(&mut self, rule: &str, acts: Vec<Act>) {
        let silent = if self.hands == Hands::Tools { 40 } else { 8 };
        let mut said = String::new();
        if !chance(&mut self.rng, silent) {
            said = self.sentence(rule);
            for _ in 0..self.rng.usize(..3) {
                let rule = ["finding", "decision", "look"][self.rng.usize(..3)];
                said.push_str(&format!(" {}", self.sentence(rule)));
            }
        }
        let calls = acts.into_iter().map(|act| self.hands.call(&mut self.rng, &self.project, act));
        let calls: Vec<Call> = calls.collect();
        self.talk.turn(&said, calls);
    }
}
