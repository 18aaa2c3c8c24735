//! Prepares the sandbox of a run's commands: its policy from the configuration, and the proof that
//! it holds here.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::StartError;
use super::control::this_process;
use super::git_folders;
use super::included;
use super::linked::links_in;
use super::walked::{through_links, walked};
use super::wall::{self, Kept, Making};
use crate::config::{Config, ProviderKind};
use crate::event::{Draft, Event};
use crate::spec::run_by_others::{self, RECORDS};
use crate::spec::sandbox::{Confinement, SandboxMode, SandboxProof, SandboxSpec};
use crate::spec::tool::code_files;
use crate::spec::{TaskSpec, Work};
use crate::tool::bash;
use crate::tool::sandbox::{Namespaces, NoSandbox, Policy, Probed, Sandbox, probe_all};
use crate::tool::survey::find_protected;
use crate::tool::wrapper::Wrapper;
use crate::trust::{self, Store};

/// The sandbox of a run, and its proof if one is wanted.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) sandbox: Sandbox,
    pub(super) proof: Option<SandboxProof>,
}

impl Prepared {
    /// Records with the opening of the run its proof, who opened it, the names of the variables of its commands, and
    /// how many children may begin in a time.
    pub(super) fn add_to(&self, drafts: &mut [Draft], config: &Config, variables: &[String]) {
        let delegates = config.agents.values().any(|agent| !agent.sub_agents.is_empty());
        for draft in drafts {
            if let Event::RunOpened(opened) = &mut draft.event {
                opened.sandbox.clone_from(&self.proof);
                opened.by = Some(this_process());
                opened.max_spawn_rate = delegates.then_some(config.limits.max_spawn_rate);
                // Without commands there is nothing to prove.
                if self.proof.is_some() {
                    opened.variables = variables.to_vec();
                }
            }
        }
    }
}

/// Proves the sandbox that a run of this configuration would have, in a program that calls
/// [`serve_if_asked`](crate::tool::wrapper::serve_if_asked). Returns `None` if a run would have none
/// and want none. Blocks for some milliseconds.
#[must_use]
pub fn proof(config: &Config) -> Option<SandboxProof> {
    if !is_wanted(config) {
        return None;
    }
    let program = Wrapper::this_program();
    let proved = match policy(config, &protected(config), Making::Nothing) {
        Ok(policy) => proved(config, &policy, program.as_deref()),
        Err(reason) => Err(Unproved { proof: missing(config, reason), why: Why::Workspace }),
    };
    Some(proved.unwrap_or_else(|none| *none.proof))
}

/// No sandbox was proved.
struct Unproved {
    /// What is recorded.
    proof: Box<SandboxProof>,
    why: Why,
}

/// Why no sandbox was proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// This machine has none.
    Machine,
    /// This machine has one around another folder.
    Workspace,
    /// It could not be tried, for a reason that may be over soon.
    Passing,
    /// It could not be tried, for another reason.
    Untried,
}

impl Why {
    fn of(none: &NoSandbox) -> Self {
        match none {
            NoSandbox::Machine(_) => Self::Machine,
            NoSandbox::Workspace(_) => Self::Workspace,
            NoSandbox::Untried(untried) if untried.may_pass() => Self::Passing,
            NoSandbox::Untried(_) => Self::Untried,
        }
    }
}

/// Returns what is recorded where there is no sandbox.
fn missing(config: &Config, reason: String) -> Box<SandboxProof> {
    let SandboxSpec { mode, network, ref hosts, .. } = config.sandbox;
    let hosts = hosts.clone();
    Box::new(SandboxProof { mode, network, hosts, missing: Some(reason), ..Default::default() })
}

/// Tries the sandbox.
fn proved(
    config: &Config,
    policy: &Policy,
    program: Option<&Path>,
) -> Result<SandboxProof, Unproved> {
    let SandboxSpec { mode, network, ref hosts, .. } = config.sandbox;
    let wanted = SandboxProof { mode, network, hosts: hosts.clone(), ..Default::default() };
    let none = "this program does not call `serve_if_asked`";
    let within = within(config, policy);
    let probed = program.ok_or_else(|| NoSandbox::Machine(none.to_owned()));
    match probed.and_then(|program| probe_all(program, policy, &within)) {
        Ok(Probed { namespaces, kept, open }) => {
            let processes = namespaces == Namespaces::Processes;
            let namespaces = namespaces != Namespaces::None;
            Ok(SandboxProof { namespaces, processes, kept, open, ..wanted })
        }
        Err(none) => {
            Err(Unproved { proof: missing(config, none.to_string()), why: Why::of(&none) })
        }
    }
}

/// Returns the policies of agents and tasks that are kept from more than the run: what an agent is kept
/// from is added to what those above it are kept from.
fn within(config: &Config, policy: &Policy) -> Vec<Policy> {
    let of_agents = config.agents.values().map(|agent| agent.confinement);
    let all: Vec<_> = of_agents.chain(config.tasks.iter().map(|task| task.confinement)).collect();
    let any = all.iter().copied().fold(Confinement::default(), Confinement::and);
    let mut found: Vec<Policy> = Vec::new();
    for confinement in all.into_iter().chain([any]) {
        let own = policy.within(confinement);
        if own != *policy && !found.contains(&own) {
            found.push(own);
        }
    }
    found
}

/// Prepares the sandbox, and proves it. `program` enters a sandbox when it is asked to.
///
/// # Errors
/// Returns an error if the sandbox cannot be tried, or if there can be none, unless a person has said for this machine
/// that commands run without one, and the configuration does not need one.
pub(super) async fn prepare(
    config: &Config,
    protected: &Kept,
    program: Option<PathBuf>,
) -> Result<Prepared, StartError> {
    if !is_wanted(config) {
        let mode = config.sandbox.mode;
        let is_off = mode == SandboxMode::DangerFullAccess && runs_commands(config);
        let proof = is_off.then(|| SandboxProof { mode, ..Default::default() });
        return Ok(Prepared { sandbox: Sandbox::Off, proof });
    }
    // What a person has said about this machine is said about machines, not about a project that cannot be
    // walled in.
    let policy = policy(config, protected, Making::Folders).map_err(StartError::Sandbox)?;
    let (own, tried) = (config.clone(), policy.clone());
    let proving = tokio::task::spawn_blocking(move || {
        let prove = || proved(&own, &tried, program.as_deref());
        let mut proof = prove();
        for pause in PAUSES_MS.map(Duration::from_millis) {
            // A full machine says nothing about its sandbox.
            if !proof.as_ref().is_err_and(|none| none.why == Why::Passing) {
                break;
            }
            std::thread::sleep(pause);
            proof = prove();
        }
        proof
    });
    let proof = proving.await.unwrap_or_else(|error| {
        Err(Unproved { proof: missing(config, error.to_string()), why: Why::Untried })
    });
    match proof {
        Ok(proof) => {
            let namespaces = match (proof.namespaces, proof.processes) {
                (_, true) => Namespaces::Processes,
                (true, false) => Namespaces::Mounts,
                (false, false) => Namespaces::None,
            };
            let policy = Policy { namespaces, ..policy };
            Ok(Prepared { sandbox: Sandbox::On(Arc::new(policy)), proof: Some(proof) })
        }
        Err(Unproved { proof: none, why }) => {
            let reason = none.missing.clone().unwrap_or_default();
            // Whoever fills a disk must not decide that commands run without a wall.
            if matches!(why, Why::Passing | Why::Untried) {
                return Err(StartError::Untried(reason));
            }
            // Without a sandbox a command would reach all hosts.
            let is_needed = config.sandbox.require || !config.sandbox.hosts.is_empty();
            if is_needed {
                return Err(StartError::Sandbox(format!("{reason}; {WANTED}")));
            }
            if why == Why::Workspace {
                return Err(StartError::Sandbox(reason));
            }
            if !Store::of_user().allows_no_sandbox(&config.root) {
                return Err(StartError::Sandbox(format!("{reason}. {WAYS_WITHOUT}")));
            }
            tracing::warn!("no sandbox: {reason}; the commands of the file run without it");
            Ok(Prepared { sandbox: Sandbox::Missing(reason.into()), proof: Some(*none) })
        }
    }
}

/// Why the word of a person about this machine does not count.
const WANTED: &str = "`[sandbox]` of the file wants nothing to run without one";

/// How a person says that commands run without a sandbox.
const WAYS_WITHOUT: &str = "Nothing runs without one unless you say so: `--sandbox danger-full-access` for \
    this run, or `callsheet trust --without-sandbox` once for this machine";

/// Pauses between tries of the sandbox while the machine has no room for one, in milliseconds.
const PAUSES_MS: [u64; 5] = [50, 100, 400, 1_000, 2_000];

/// Returns true if a run wants a sandbox: anything in it can run a command, which tasks
/// that agents propose can too, and nobody turned it off.
fn is_wanted(config: &Config) -> bool {
    config.sandbox.mode != SandboxMode::DangerFullAccess && runs_commands(config)
}

/// Returns true if anything in the run can run a command.
fn runs_commands(config: &Config) -> bool {
    let notifies = |task: &TaskSpec| match &task.work {
        Work::Approval(approval) => !approval.notify.is_empty(),
        Work::Agent { .. } | Work::Command { .. } | Work::Graph { .. } => false,
    };
    let in_tasks = || config.tasks.iter().any(|task| task.has_command() || notifies(task));
    let mut tools = config.agents.values().flat_map(|agent| &agent.tools);
    let mut in_agents =
        || tools.any(|tool| tool.as_str() == bash::NAME || config.tools.contains_key(tool));
    let in_hooks =
        || config.compaction.hooks.commands().next().is_some() || !config.hooks.set().is_empty();
    in_tasks() || in_agents() || in_hooks() || config.grows()
}

/// Returns what the commands of a run may reach.
fn policy(config: &Config, protected: &Kept, making: Making) -> Result<Policy, String> {
    let named = named(config);
    let below = |path: &Path| path.strip_prefix(&config.root).map(Path::to_owned).ok();
    // A root lifts the protection of what other programs run only if it names such a thing: `src` does not
    // lift that of `src/.vscode`.
    let is_lifted = |root: &PathBuf, path: &PathBuf| {
        let is_theirs = protected.found.contains(path)
            || below(path).is_some_and(|path| run_by_others::protected(&path).is_some());
        let names_theirs = || below(root).is_some_and(|root| run_by_others::lifts(&root));
        path.starts_with(root) && (!is_theirs || names_theirs())
    };
    // Nothing lifts the protection of the records: a command could say in them what the run did.
    let records = walked(&config.state_dir).map(|records| records.path);
    let is_record = |path: &PathBuf| {
        let is_named = |part: &OsStr| part == RECORDS;
        records.iter().any(|records| path.starts_with(records)) || path.iter().any(is_named)
    };
    let is_named =
        |path: &&PathBuf| !is_record(path) && named.iter().any(|root| is_lifted(root, path));
    let paths = protected.paths.iter();
    let mut kept: Vec<PathBuf> = paths.filter(|path| !is_named(path)).cloned().collect();
    // Nothing lifts the protection of the store of trust: a command could trust its own file with it.
    kept.extend(trust::real_folder());
    if making == Making::Folders && config.sandbox.mode == SandboxMode::WorkspaceWrite {
        kept.extend(git_folders::completed(&config.root, &kept));
    }
    let pinned = protected.pinned.clone();
    let kept = Kept { paths: kept, pinned, open: named, ..Kept::default() };
    wall::policy(config, kept, making)
}

/// Returns the writable roots that lift the protection of paths: those in the workspace. One around it
/// does not name them.
pub(super) fn named(config: &Config) -> Vec<PathBuf> {
    let roots = config.sandbox.writable_roots.iter().filter_map(|path| walked(path));
    let roots = roots.map(|root| root.path);
    roots.filter(|path| *path != config.root && path.starts_with(&config.root)).collect()
}

/// Returns what no tool changes: what the configuration names, what other programs run, and the records.
/// Walks the workspace.
pub(super) fn protected(config: &Config) -> Kept {
    let mut kept = Kept::default();
    let Theirs { found, named } = theirs(config);
    let found = found.iter().map(|path| (path, true));
    let others = named.into_iter().chain(own(config)).collect::<Vec<_>>();
    for (path, is_found) in found.chain(others.iter().map(|path| (path, false))) {
        let Some(walked) = walked(path) else { continue };
        // What a link leads to is as good as what it is.
        let all = through_links(&walked.path).into_iter().chain([walked.path]);
        for path in all {
            if is_found {
                kept.found.insert(path.clone());
            }
            kept.paths.push(path);
        }
        kept.pinned.extend(walked.left);
    }
    // Each one takes time for each command.
    for list in [&mut kept.paths, &mut kept.pinned] {
        let mut known = HashSet::new();
        list.retain(|path| known.insert(path.clone()));
    }
    kept
}

/// What other programs run or trust.
struct Theirs {
    /// What was found, with what links in such folders lead to.
    found: Vec<PathBuf>,
    /// What may come into being later, and folders that were not looked into.
    named: Vec<PathBuf>,
}

/// Walks the workspace for what other programs run or trust.
fn theirs(config: &Config) -> Theirs {
    let named = run_by_others::TRUSTED.into_iter().map(|path| config.root.join(path));
    let mut named: Vec<PathBuf> = named.collect();
    let walked = find_protected(&config.root);
    if let Some(left_out) = walked.left_out {
        tracing::warn!("{left_out}");
    }
    named.extend(walked.unseen);
    let below = |path: &Path| path.strip_prefix(&config.root).map(Path::to_owned);
    let is_theirs = |path: &&PathBuf| below(path).is_ok_and(|path| run_by_others::lifts(&path));
    let mut found = walked.paths;
    let links = links_in(found.iter().filter(is_theirs).map(PathBuf::as_path));
    found.extend(links);
    Theirs { found, named }
}

/// Returns what the configuration names, and the records.
fn own(config: &Config) -> Vec<PathBuf> {
    let root = |path: &str| config.root.join(path);
    let mut found = included::folders(config);
    found.push(config.file.clone());
    found.push(config.state_dir.clone());
    found.extend(trust::real_folder().filter(|store| store.starts_with(&config.root)));
    found.extend(config.files.keys().map(|path| root(path)));
    let scripts = config.providers.values().filter_map(|provider| match &provider.kind {
        ProviderKind::Scripted { script } => Some(config.root.join(script)),
        _ => None,
    });
    found.extend(scripts);
    let hooks = config.compaction.hooks.commands().flatten();
    found.extend(hooks.map(|word| root(word)).filter(|path| path.is_file()));
    let set = config.hooks.set();
    let of_run = set.iter().flat_map(|hook| config.hooks.command(*hook));
    found.extend(of_run.map(|word| root(word)).filter(|path| path.is_file()));
    found.extend(super::judging::kept(&config.hooks.pre_tool_use, &config.root));
    // It runs outside of the sandbox, so nothing inside may change what it runs.
    found.extend(super::judging::kept(&config.notify.command, &config.root));
    let of_tools = config.tools.values().flat_map(|tool| code_files(&tool.command));
    found.extend(of_tools.map(root).filter(|path| path.is_file()));
    found
}
