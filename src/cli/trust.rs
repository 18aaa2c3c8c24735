//! Trust: asks before a configuration does what nobody would expect of a project, and the verb `trust`.
//!
//! Every verb that runs a configuration loads it through [`load`]. It loads it first without touching
//! anything outside the directory. Only when all that needs trust has it, the rest is read.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::ask;
use super::locate::{Project, quoted, whose};
use super::{args, complain, mistakes, say};
use crate::config::{self, Concern, Config, Diagnostics, Missing, Outside, Severity, Sources};
use crate::exit::Exit;
use crate::show::question::safe;
use crate::trust::{Store, StoreError};

/// The most things that are listed where nobody can be asked.
const LISTED: usize = 50;

/// How a verb gets trust that it does not have yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// The person at the terminal is asked.
    Ask,
    /// The person has said so, with `--trust`.
    Given,
}

impl From<&args::Trusting> for Trust {
    fn from(flag: &args::Trusting) -> Self {
        if flag.trust { Self::Given } else { Self::Ask }
    }
}

/// Loads a configuration that is about to run, and prints its diagnostics. `read` loads it with or
/// without the files outside its directory.
pub(super) fn load(
    project: &Project,
    trust: Trust,
    sources: &Sources,
    read: impl Fn(Outside) -> Result<Config, Diagnostics>,
) -> Result<Config, Exit> {
    let mut granted = Granted::default();
    for outside in [Outside::LeaveOut, Outside::Read] {
        let loaded = read(outside);
        // What is left out is warned of when it has been read.
        let config = match loaded {
            Ok(config) if config.is_partial => config,
            loaded => mistakes::shown(loaded, sources)?,
        };
        // The second time the files may be others than those that were looked at: they are judged
        // again.
        get(project, trust, &config, &mut granted)?;
        if !config.is_partial {
            granted.remember();
            return Ok(config);
        }
    }
    complain("error: a bug: files were left out of a configuration that is trusted");
    Err(Exit::Bug)
}

/// Gets the trust that a verb needs that writes to a run, before it does: if the file chose a folder of runs outside its
/// own, they may be those of another project.
pub(super) fn for_records(project: &Project, trust: Trust) -> Result<(), Exit> {
    let Some(folder) = project.lent_folder() else { return Ok(()) };
    let sources = Sources { missing_keys: Missing::Allow, ..project.sources() };
    let read = |outside| config::load(&Sources { outside, ..sources.clone() });
    let loaded = load(project, trust, &sources, read);
    loaded.map(drop).inspect_err(|_| {
        complain(&format!(
            "help: nothing was written to the runs there; `--state-dir {}` says that they are meant",
            quoted(&folder)
        ));
    })
}

/// Gets the trust that a configuration needs that was looked at, and loads the rest of it, if files
/// outside its directory were left out.
pub(super) fn complete(
    project: &Project,
    trust: Trust,
    sources: &Sources,
    config: Config,
    read: impl Fn(Outside) -> Result<Config, Diagnostics>,
) -> Result<Config, Exit> {
    if config.is_partial {
        // What is read now may need more trust than what was looked at.
        return load(project, trust, sources, read);
    }
    let mut granted = Granted::default();
    get(project, trust, &config, &mut granted)?;
    granted.remember();
    Ok(config)
}

/// Loads a configuration that does not run: all of it if it is trusted, or else without what lies
/// outside its directory. Asks nothing.
pub(super) fn look(
    read: impl Fn(Outside) -> Result<Config, Diagnostics>,
) -> Result<Config, Diagnostics> {
    let config = read(Outside::LeaveOut)?;
    if config.is_partial && is_trusted(&config) {
        return read(Outside::Read);
    }
    match config.warnings.iter().any(|found| found.severity == Severity::Error) {
        true => {
            let own = wanted(&config.concerns).into_iter().map(|concern| concern.found.clone());
            Err(Diagnostics(config.warnings.iter().cloned().chain(own.take(LISTED)).collect()))
        }
        false => Ok(config),
    }
}

/// Does the same for a verb that needs the configuration, and prints its diagnostics.
pub(super) fn looked(sources: &Sources) -> Result<Config, Exit> {
    let read = |outside| config::load(&Sources { outside, ..sources.clone() });
    mistakes::shown(look(read), sources)
}

/// Returns true if everything that needs trust has it.
pub(super) fn is_trusted(config: &Config) -> bool {
    let wanted = wanted(&config.concerns);
    wanted.is_empty() || trusts(&Store::of_user(), config, &wanted)
}

fn trusts(store: &Store, config: &Config, wanted: &[&Concern]) -> bool {
    let texts = wanted.iter().map(|concern| concern.text.as_str());
    store.trusts(&config.root, &config.content_hash, texts).unwrap_or_else(|error| {
        match error {
            StoreError::Nowhere | StoreError::Inside(_) => {}
            StoreError::Unusable { .. } | StoreError::Io { .. } => {
                complain(&format!("note: nothing is trusted: {error}"));
            }
        }
        false
    })
}

/// Returns what the project wants. What the person asked for needs no trust.
fn wanted(concerns: &[Concern]) -> Vec<&Concern> {
    concerns.iter().filter(|concern| !concern.is_own).collect()
}

/// Gets the trust that a configuration needs, or prints why it cannot be had.
fn get(
    project: &Project,
    trust: Trust,
    config: &Config,
    granted: &mut Granted,
) -> Result<(), Exit> {
    if config.concerns.is_empty() {
        return Ok(());
    }
    let (store, wanted) = (Store::of_user(), wanted(&config.concerns));
    let is_known =
        wanted.is_empty() || granted.covers(config, &wanted) || trusts(&store, config, &wanted);
    match (is_known, trust) {
        (true, _) => {}
        (false, Trust::Given) => {
            complain(&format!("trusted, as {} wants it:", shown(project)));
            list_some(&wanted);
            of_others(project).iter().for_each(|warning| complain(warning));
        }
        (false, Trust::Ask) if ask::has_terminal() => {
            if !ask::confirm(&question(project, &wanted), "trust it?") {
                complain("error: not trusted: nothing was sent, and nothing outside was read");
                return Err(Exit::Usage);
            }
        }
        (false, Trust::Ask) => {
            refuse(project, &wanted);
            return Err(Exit::Usage);
        }
    }
    granted.add(config, is_known);
    Ok(())
}

/// What a person has said yes to while a configuration was loaded. It is remembered when all of it was loaded:
/// what has mistakes does not run, and leaves nothing behind.
#[derive(Debug, Default)]
struct Granted(Vec<Grant>);

#[derive(Debug)]
struct Grant {
    root: PathBuf,
    content_hash: String,
    concerns: Vec<Concern>,
    /// True if it was trusted before.
    is_known: bool,
}

impl Granted {
    fn covers(&self, config: &Config, wanted: &[&Concern]) -> bool {
        let same = self.0.iter().filter(|grant| grant.content_hash == config.content_hash);
        let known: HashSet<&str> =
            same.flat_map(|grant| &grant.concerns).map(|concern| concern.text.as_str()).collect();
        wanted.iter().all(|concern| known.contains(concern.text.as_str()))
    }

    fn add(&mut self, config: &Config, is_known: bool) {
        let Config { root, content_hash, concerns, .. } = config;
        let (root, content_hash) = (root.clone(), content_hash.clone());
        self.0.push(Grant { root, content_hash, concerns: concerns.clone(), is_known });
    }

    fn remember(&self) {
        let store = Store::of_user();
        self.0.iter().for_each(|grant| remember(&store, grant));
    }
}

/// Remembers what is trusted, and what the person asked for: a resume must not ask about that.
fn remember(store: &Store, grant: &Grant) {
    let Grant { root, content_hash, concerns, is_known } = grant;
    let texts = concerns.iter().map(|concern| concern.text.as_str());
    if *is_known && store.trusts(root, content_hash, texts.clone()).unwrap_or(false) {
        return;
    }
    match store.remember(root, content_hash, texts) {
        Ok(()) => {}
        Err(error) if *is_known => tracing::info!(%error, "a resume will ask for trust"),
        Err(error) => complain(&format!("note: this is not remembered: {error}")),
    }
}

fn question(project: &Project, wanted: &[&Concern]) -> Vec<String> {
    let mut text = vec![format!("{} wants more than a project usually needs:", shown(project))];
    text.extend(lines(wanted));
    text.extend(of_others(project));
    text.push("A yes is remembered for this directory and this content of the file.".to_owned());
    text
}

/// Returns a warning where others can change what runs without a change of the file: the scripts beside it.
fn of_others(project: &Project) -> Option<String> {
    let file = std::path::absolute(&project.file).ok()?;
    let reason = safe(&whose(&file)?);
    Some(format!(
        "Note that {reason}: whoever can change the scripts there, changes what a yes allows."
    ))
}

fn refuse(project: &Project, wanted: &[&Concern]) {
    complain(&format!(
        "error[needs_trust]: {} wants more than a project usually needs, and there is no one to ask:",
        shown(project)
    ));
    list_some(wanted);
    of_others(project).iter().for_each(|warning| complain(warning));
    complain(&format!(
        "help: look at it; then `callsheet trust {}` remembers that you trust it, or `--trust` says \
         so with this command",
        project.quoted_file()
    ));
}

/// Prints the first things, and how many more there are.
fn list_some(wanted: &[&Concern]) {
    let lines = lines(wanted);
    lines.iter().take(LISTED).for_each(|line| complain(line));
    if let Some(more @ 1..) = lines.len().checked_sub(LISTED) {
        complain(&format!("  and {more} more"));
    }
}

/// Returns a line for each thing, with the place where it is written.
fn lines(wanted: &[&Concern]) -> Vec<String> {
    let line = |concern: &&Concern| {
        let found = &concern.found;
        let place = format!("{}:{}:{}", found.file, found.line, found.column);
        format!("  {}: {}", safe(&place), safe(&concern.text))
    };
    wanted.iter().map(line).collect()
}

fn shown(project: &Project) -> String {
    safe(&project.file.display().to_string())
}

pub(super) fn run(project: &Project, verb: &args::TrustFile) -> Exit {
    let done = match (verb.list, verb.revoke) {
        _ if verb.without_sandbox => without_sandbox(!verb.revoke),
        (true, _) => list(),
        (false, true) => revoke(project),
        (false, false) => trust(project),
    };
    done.unwrap_or_else(|exit| exit)
}

/// Prints what is trusted.
fn list() -> Result<Exit, Exit> {
    let entries = Store::of_user().entries().map_err(|error| failed(&error))?;
    let mut text = String::new();
    if Store::of_user().goes_without_sandbox() {
        text.push_str("this machine: commands of files run where there is no sandbox\n");
    }
    for entry in &entries {
        let directory = safe(&entry.directory.display().to_string());
        let content = entry.content.get(..12).unwrap_or_default();
        text.push_str(&format!("{directory} (content {content})\n"));
        entry.things.values().for_each(|thing| text.push_str(&format!("  {}\n", safe(thing))));
    }
    Ok(say(&text))
}

/// Remembers whether commands of files run on this machine where it has no sandbox.
fn without_sandbox(allowed: bool) -> Result<Exit, Exit> {
    Store::of_user().allow_no_sandbox(allowed).map_err(|error| failed(&error))?;
    Ok(say(match allowed {
        true => {
            "where this machine has no sandbox, commands of files run without one from now on\n"
        }
        false => "where this machine has no sandbox, nothing runs any more\n",
    }))
}

fn revoke(project: &Project) -> Result<Exit, Exit> {
    let directory = directory(&project.file);
    let count = Store::of_user().revoke(&directory).map_err(|error| failed(&error))?;
    let shown = safe(&directory.display().to_string());
    Ok(say(&match count {
        0 => format!("nothing was trusted in {shown}\n"),
        _ => format!("nothing is trusted any more in {shown}\n"),
    }))
}

fn directory(file: &Path) -> PathBuf {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    parent.canonicalize().unwrap_or_else(|_| parent.to_owned())
}

fn failed(error: &StoreError) -> Exit {
    complain(&format!("error: {error}"));
    match error {
        StoreError::Io { .. } => Exit::Disk,
        StoreError::Nowhere | StoreError::Inside(_) | StoreError::Unusable { .. } => Exit::Usage,
    }
}

/// Says what the configuration wants, with each of its profiles, and remembers that it is trusted.
/// Without a terminal the verb itself is the yes.
fn trust(project: &Project) -> Result<Exit, Exit> {
    let store = Store::of_user();
    let mut is_new = false;
    for outside in [Outside::LeaveOut, Outside::Read] {
        let configs = with_profiles(project, outside)?;
        let (mut all, mut known) = (Vec::new(), HashSet::new());
        for concern in configs.iter().flat_map(|config| wanted(&config.concerns)) {
            if known.insert(concern.text.as_str()) {
                all.push(concern);
            }
        }
        let Some(first) = configs.first() else { break };
        if !all.is_empty() && !trusts(&store, first, &all) {
            is_new = true;
            let text = question(project, &all);
            if !ask::has_terminal() {
                text.iter().for_each(|line| complain(line));
            } else if !ask::confirm(&text, "trust it?") {
                complain("error: not trusted");
                return Err(Exit::Usage);
            }
            let texts = all.iter().map(|concern| concern.text.as_str());
            let remembered = store.remember(&first.root, &first.content_hash, texts);
            remembered.map_err(|error| failed(&error))?;
        }
        if all.is_empty() && outside == Outside::LeaveOut {
            return Ok(say(&format!("{}: nothing in it needs trust\n", shown(project))));
        }
        if !configs.iter().any(|config| config.is_partial) {
            break;
        }
    }
    Ok(say(&match is_new {
        true => format!("{}: trusted as it is now\n", shown(project)),
        false => format!("{}: trusted already\n", shown(project)),
    }))
}

/// Loads the configuration as it is without a profile and with each of them. A profile that cannot be
/// loaded cannot run either, and is left out.
fn with_profiles(project: &Project, outside: Outside) -> Result<Vec<Config>, Exit> {
    let sources = Sources {
        missing_keys: Missing::Allow,
        missing_inputs: Missing::Allow,
        outside,
        ..project.sources()
    };
    let plain = config::load(&sources);
    let mut configs = Vec::new();
    for profile in config::names_of(&sources, "profiles") {
        match config::load(&Sources { profile: Some(profile.clone()), ..sources.clone() }) {
            Ok(config) => configs.push(config),
            Err(_) => complain(&format!("note: the profile `{}` has mistakes", safe(&profile))),
        }
    }
    match plain {
        Ok(config) => configs.insert(0, config),
        // A file may need one of its profiles.
        Err(_) if !configs.is_empty() => {}
        Err(mistakes) => drop(mistakes::shown(Err(mistakes), &sources)?),
    }
    Ok(configs)
}
