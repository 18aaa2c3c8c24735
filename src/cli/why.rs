//! `why`: prints the chain of causes of a wait, a failure, a skip or a bill.

use jiff::Timestamp;

use super::args;
use super::awaited_budgets;
use super::locate::{Project, Selector, agents, word};
use super::rows::folded;
use super::show::tasks;
use super::stream::Stream;
use super::{complain, refusal, say, say_json};
use crate::client::Client;
use crate::event::SharedRecord;
use crate::exit::Exit;
use crate::journal::source::RecordedRun;
use crate::journal::stamp;
use crate::printable;
use crate::report::bill;
use crate::report::why::Answer;
use crate::run_state::RunState;
use crate::show::names::Names;
use crate::show::why::Help;
use crate::spec::budget::Scope;
use crate::why::{Bill, Subject};

/// The most characters of a question's id in a command.
const ID: usize = 8;

/// The state of a run at the moment that is asked about.
struct Past {
    state: RunState,
    /// What was spent until then, if that is asked about.
    bill: Option<Bill>,
    is_live: bool,
    now_ms: i64,
}

pub(super) fn run(project: &Project, verb: &args::Why) -> Exit {
    answer(project, verb).unwrap_or_else(|exit| exit)
}

fn answer(project: &Project, verb: &args::Why) -> Result<Exit, Exit> {
    let (run, part) = project.shown(verb.what.as_deref())?;
    let past = past(project, &run, verb)?;
    let Past { state, is_live, now_ms, bill } = &past;
    if state.created().is_none() {
        complain("error: the run has no records yet");
        return Err(Exit::Failed);
    }
    let mut text = String::new();
    for subject in subjects(state, &part)? {
        let answer = Answer::of(state, &subject, *is_live, *now_ms);
        let help = answer.outlook().and_then(|outlook| outlook.help);
        // The past needs no command.
        let help = help.filter(|_| verb.at.is_none());
        let help = help.map(|help| command(project, &run, state, help));
        let items = bill.as_ref().map(|bill| bill.of(state, &subject));
        if verb.json {
            let mut document = answer.json(&run.name(), help.as_deref());
            if let Some(items) = &items {
                document["bill"] = bill::json(items);
            }
            text.push_str(&format!("{document}\n"));
            continue;
        }
        if let Some(items) = &items {
            for line in bill::lines(&subject, items, &Names::of(state), verb.all) {
                text.push_str(&line);
                text.push('\n');
            }
            continue;
        }
        let time = |ms| project.times.day_and_time(ms);
        for line in answer.lines(verb.all, time, help.as_deref()) {
            text.push_str(&line);
            text.push('\n');
        }
    }
    if verb.json {
        return Ok(say_json(&text));
    }
    // Only the process itself knows this, and no record will.
    if let (true, None, false) = (*is_live, &verb.at, verb.cost)
        && let Some(busy) = Client::of(run).busy()
    {
        text.push_str(&format!("live: the supervisor is busy: {}\n", printable::line(&busy)));
    }
    Ok(say(&folded(&text, Stream::Out)))
}

/// Returns what is asked about.
fn subjects(state: &RunState, part: &Selector) -> Result<Vec<Subject>, Exit> {
    Ok(match part {
        Selector::Run => vec![Subject::Run],
        Selector::Task(name) => {
            tasks(state, name)?.into_iter().map(|(name, _)| Subject::Task(name.clone())).collect()
        }
        Selector::Agent(name) => {
            agents(state, name)?.into_iter().map(|(id, _)| Subject::Agent(id.clone())).collect()
        }
    })
}

/// Reads the state of a run now, or at the moment that the command line names.
fn past(project: &Project, run: &RecordedRun, verb: &args::Why) -> Result<Past, Exit> {
    let is_live = run.is_live();
    let mut bill = verb.cost.then(Bill::default);
    let Some(at) = verb.at.as_deref() else {
        let state = match &mut bill {
            None => project.state(run)?,
            Some(bill) => project.fold(run, |record| bill.note(record))?,
        };
        return Ok(Past { state, bill, is_live, now_ms: stamp::now_ms() });
    };
    let (mut last, mut until_ms) = (u64::MAX, i64::MAX);
    match (at.parse::<u64>(), project.times.read(at)) {
        (Ok(seq), _) => last = seq,
        (Err(_), Some(ms)) => until_ms = ms,
        (Err(_), None) => {
            complain(&format!("error: `{}` is neither a record nor a time", printable::line(at)));
            complain("help: `--at 911`, `--at 03:30` (today) or `--at 2026-11-27T03:30:00Z`");
            return Err(Exit::Usage);
        }
    }
    let (mut state, mut next): (RunState, Option<SharedRecord>) = (RunState::default(), None);
    let (whole, read) = run.fold(|record| {
        if next.is_none() && record.seq <= last && record.ts_ms <= until_ms {
            // The fold of the whole run has refused illegal records before.
            let _ = state.apply(record);
            bill.iter_mut().for_each(|bill| bill.note(record));
        } else {
            next.get_or_insert_with(|| record.clone());
        }
    });
    read.map_err(|error| refusal::refused(&project.flags(), Some(run), &error))?;
    if last != u64::MAX && (last == 0 || whole.last_seq() < last) {
        let end = whole.last_seq();
        complain(&format!("error: the run has no record {last}: its last one is {end}"));
        return Err(Exit::Failed);
    }
    // Between two openings no process drove the run; the record itself was written by one.
    let is_live = match &next {
        Some(next) => last != u64::MAX || next.epoch == state.epoch(),
        None => is_live,
    };
    let now_ms = match until_ms {
        i64::MAX => state.last_ms(),
        until_ms => until_ms.min(stamp::now_ms()),
    };
    state.lose_requests_unless(is_live);
    Ok(Past { state, bill, is_live, now_ms })
}

/// Returns the command that helps.
fn command(project: &Project, run: &RecordedRun, state: &RunState, help: Help) -> String {
    let (flags, id) = (project.flags(), project.short(run));
    let names = Names::of(state);
    let part = |subject: &Subject| match subject {
        Subject::Run => id.clone(),
        Subject::Task(name) => word(&format!("{id}/{}", names.shown(name.as_str()))),
        Subject::Agent(agent) => word(&format!("{id}/@{}", names.shown(agent.as_str()))),
    };
    let of = |scope: Scope| match scope {
        Scope::Run => Subject::Run,
        Scope::Task(name) => Subject::Task(name),
        Scope::Agent(id) => Subject::Agent(id),
    };
    let short = |question: &str| word(question.get(..ID).unwrap_or(question));
    match help {
        Help::Approve(question) => format!("callsheet approve{flags} {}", short(&question)),
        Help::Answer(question) => format!("callsheet answer{flags} {} TEXT", short(&question)),
        Help::Resume => project.resume_command(&id),
        Help::Retry(task) => {
            let task = task.map(|task| format!(" {}", word(&names.shown(&task))));
            let resume = project.resume_command(&id);
            format!("{resume} --retry-failed{}", task.unwrap_or_default())
        }
        Help::Raise(scope, measure) => {
            format!(
                "callsheet budget{flags} {} {}",
                part(&of(scope)),
                awaited_budgets::flag(measure)
            )
        }
        Help::Unpause(scope) => format!("callsheet unpause{flags} {}", part(&of(scope))),
        Help::RetryWith(task, scope) => {
            let task = task.map(|task| format!(" {}", word(&names.shown(&task))));
            let resume = project.resume_command(&id);
            // Only the budget of the run can be raised by the command itself, and others in agents.toml.
            let raised = match scope {
                Some(Scope::Run) => "--max-cost USD",
                Some(Scope::Task(_) | Scope::Agent(_)) | None => "--accept-changes",
            };
            format!("{resume} {raised} --retry-failed{}", task.unwrap_or_default())
        }
        Help::Cancel(subject) => format!("callsheet cancel{flags} {}", part(&subject)),
        Help::Show(subject) => format!("callsheet show{flags} {}", part(&subject)),
        Help::Doctor => "callsheet doctor".to_owned(),
    }
}

impl super::times::Times {
    /// Reads a moment as a person types it: a time of today, or a date with a time, in the zone in which times are
    /// shown unless it names another one. Returns milliseconds since the Unix epoch.
    fn read(&self, text: &str) -> Option<i64> {
        if let Ok(moment) = text.parse::<Timestamp>() {
            return Some(moment.as_millisecond());
        }
        let zone = self.zone();
        let at = match text.parse::<jiff::civil::Time>() {
            Ok(time) => Timestamp::now().to_zoned(zone.clone()).date().to_datetime(time),
            Err(_) => text.parse::<jiff::civil::DateTime>().ok()?,
        };
        Some(at.to_zoned(zone.clone()).ok()?.timestamp().as_millisecond())
    }
}
