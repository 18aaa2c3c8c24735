//! Makes what the actors need from the configuration: models, tools, workspace, settings.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::{Semaphore, watch};

use super::planner::Planner;
use super::{Options, StartError, sandbox};
use crate::actor::addresses::Addresses;
use crate::actor::briefing::{Briefings, Front, Stock};
use crate::actor::gateway::{GatewaySettings, OnQuota, Rules};
use crate::actor::model_service::ModelService;
use crate::actor::replies::Replies;
use crate::actor::services::{Services, Teller};
use crate::actor::spans;
use crate::actor::surroundings::Surroundings;
use crate::config::{Config, ProviderKind, ProviderSpec, is_secret};
use crate::context::layers::preset::Preference;
use crate::context::provider::strategy::{self, Strategy, StrategySettings, Wanted};
use crate::event::PlanExtended;
use crate::id::{Name, RunId};
use crate::journal::JournalHandle;
use crate::journal::disk_space::DiskSpace;
use crate::journal::driving::Drivable;
use crate::model::Client;
use crate::model::anthropic::{Anthropic, CacheFor};
use crate::model::http::{Endpoint, Key};
use crate::model::openai::OpenAi;
use crate::model::responses::Responses;
use crate::model::script::Script;
use crate::model::scripted::Scripted;
use crate::model::webhook::Webhook;
use crate::person::Watcher;
use crate::policy::RetryPolicy;
use crate::redaction::{Secrets, texts_of_address, texts_of_header, texts_of_variable};
use crate::run_state::quotas::Quotas;
use crate::spec::capability::ModelFacts;
use crate::spec::sandbox::SandboxMode;
use crate::spec::{AgentSpec, ModelSpec};
use crate::tool::Toolbox;
use crate::tool::sandbox::toolchains;
use crate::tool::survey::watch::Watch;
use crate::tool::under_way::UnderWay;
use crate::tool::workspace::Workspace;
use crate::tool::wrapper::Wrapper;
use crate::tool::{environment, own};

/// Concurrent calls of a model that the program provides. The number is high, because the capacity
/// of such a model is not known.
const CUSTOM_CONCURRENCY: usize = 64;

/// The services that can be made before the run directory exists, so that a mistake costs nothing.
#[derive(Debug)]
pub(super) struct Prepared {
    models: HashMap<Name, Arc<ModelService>>,
    pub(super) gateways: Vec<GatewaySettings>,
    tools: Toolbox,
    workspace: Workspace,
    pub(super) sandbox: sandbox::Prepared,
}

impl Prepared {
    /// Makes the clients of the providers, asks them what their models can do, and opens the
    /// workspace.
    pub(super) async fn prepare(config: &Config, options: &Options) -> Result<Self, StartError> {
        let mut clients: HashMap<Name, Arc<dyn Client>> = HashMap::new();
        let mut known = Vec::new();
        let mut gateways = Vec::new();
        for (name, spec) in &config.models {
            let provider = config.providers.get(&spec.provider);
            let rules = provider.map_or(Rules::of(CUSTOM_CONCURRENCY), |p| p.rules);
            let (model, retry) = match (options.models.get(name), provider) {
                (Some(own), _) => (own.clone(), RetryPolicy::default()),
                (None, Some(provider)) => {
                    let client = match clients.get(&provider.name) {
                        Some(client) => client.clone(),
                        None => {
                            let client = client(provider)?;
                            clients.insert(provider.name.clone(), client.clone());
                            client
                        }
                    };
                    (client, provider.retry.clone())
                }
                (None, None) => {
                    let reason = "the program provides no model of this name".to_owned();
                    return Err(StartError::Provider { provider: spec.provider.clone(), reason });
                }
            };
            let holds = provider.is_some_and(|provider| provider.holds_to_schema);
            known.push((spec.clone(), model, (retry, rules, holds)));
            let has_gateway =
                gateways.iter().any(|g: &GatewaySettings| g.provider == spec.provider);
            if !has_gateway {
                let (provider, closed_for) = (spec.provider.clone(), None);
                gateways.push(GatewaySettings { provider, rules, closed_for });
            }
        }
        let mut tools = toolbox(config);
        for tool in &options.tools {
            tools.insert(tool.clone());
        }
        let protected = sandbox::protected(config);
        let workspace = workspace(config, &protected.paths)?;
        let sandbox = sandbox::prepare(config, &protected, wrapper_program(options)).await?;
        // All providers are asked at once, so that several models delay a run no more than one.
        let services = known.into_iter().map(|(spec, model, retry)| {
            let in_use = config.models_in_use.contains(&spec.name);
            let used = if in_use { Use::Called } else { Use::Idle };
            service(spec, model, retry, used, &config.compaction.strategy)
        });
        let services = futures_util::future::join_all(services).await;
        let models = services.into_iter().map(|s| (s.spec.name.clone(), Arc::new(s))).collect();
        Ok(Self { models, gateways, tools, workspace, sandbox })
    }

    pub(super) fn into_services(
        self,
        config: &Config,
        options: &Options,
        (run, here): (RunId, &dyn Drivable),
        journal: JournalHandle,
        proposed: &[PlanExtended],
        watcher: Arc<dyn Watcher>,
    ) -> Result<Services, StartError> {
        let limits = super::settings::Flags::from(options).limits(config);
        let store = here.store();
        let results = store.results_dir().to_owned();
        // Agents may read the full outputs that previews name.
        let workspace = self.workspace.with_read_only_root(&results);
        let workspace = workspace.map_err(|source| opening(&results, source))?;
        let secrets = redacted(config);
        let disk = journal.clone();
        let report_full = move || disk.report_full();
        let store = store.waiting_while(report_full).redacting(secrets.clone());
        let wrapper =
            wrapper_program(options).map(|program| Wrapper { program, secrets: secrets.clone() });
        // It keeps a copy of the whole configuration, which only a run needs whose agents may propose tasks.
        let grows = config.grows() || !proposed.is_empty();
        let (root, store) = (workspace.root_path().to_owned(), Arc::new(store));
        let watch = Watch::new(root, here.folder().to_owned(), store.clone(), secrets.clone());
        let surroundings = Surroundings {
            workspace: Arc::new(workspace),
            watch: Arc::new(watch),
            env: Arc::new(environment_of_commands(config)),
            wrapper: wrapper.map(Arc::new),
            sandbox: self.sandbox.sandbox,
        };
        Ok(Services {
            run,
            surroundings: Arc::new(surroundings),
            under_way: Arc::new(UnderWay::new(here.under_way(), false)),
            span: spans::run(run, &config.name),
            workflow: config.name.clone(),
            inputs: config.inputs.clone(),
            agents: RwLock::new(definitions(config)),
            briefings: Briefings::default(),
            models: self.models,
            tools: self.tools,
            store,
            secrets,
            lost: Arc::default(),
            changed_files: Default::default(),
            limits,
            limits_spending: AtomicBool::new(false),
            hooks: config.hooks.clone(),
            teller: teller(config),
            compaction: config.compaction.clone(),
            planner: grows.then(|| Arc::new(Planner::new(config, run, proposed)) as _),
            journal,
            disk_space: watch::Sender::new(DiskSpace::Enough),
            transcripts: here.agent_files().folder().to_owned(),
            asker: options.asker.clone(),
            watcher,
            addresses: Addresses::new(self.gateways.into_iter().map(|gateway| gateway.provider)),
            requests: Replies::default(),
            pulse: Default::default(),
            processors: Arc::new(Semaphore::new(cores())),
            answer_outcomes: Replies::default(),
            calls: AtomicU64::new(1),
        })
    }
}

/// Returns the front of an agent's requests (system prompt and tools) for this definition and
/// delegation depth, for callers that only read a run. Returns `None` if the configuration has no
/// such agent or no workspace.
#[must_use]
pub fn front(config: &Config, definition: &Name, depth: u32) -> Option<Front> {
    let stock = Stock {
        agents: &definitions(config),
        tools: &toolbox(config),
        workspace: &workspace(config, &[]).ok()?,
        preset: &config.compaction.preset,
        limits: &config.limits,
    };
    Some(stock.front(config.agents.get(definition)?, depth))
}

fn definitions(config: &Config) -> BTreeMap<Name, Arc<AgentSpec>> {
    config.agents.iter().map(|(name, spec)| (name.clone(), Arc::new(spec.clone()))).collect()
}

/// Returns the built-in tools and those of the configuration.
fn toolbox(config: &Config) -> Toolbox {
    let mut tools = Toolbox::built_in();
    for command in config.tools.values() {
        tools.insert(own::tool(command));
    }
    tools
}

/// Says whether the run may call a model.
#[derive(Clone, Copy)]
enum Use {
    Called,
    Idle,
}

/// Returns a model with its known capabilities. A provider that does not answer when asked is
/// assumed to have none: if it cannot answer calls either, these fail by themselves.
async fn service(
    mut spec: ModelSpec,
    model: Arc<dyn Client>,
    (retry, rules, holds_to_schema): (RetryPolicy, Rules, bool),
    used: Use,
    strategy: &StrategySettings,
) -> ModelService {
    let facts = match used {
        Use::Idle => Ok(ModelFacts::declared(&spec.capabilities)),
        Use::Called => model.facts(&spec).await,
    };
    let facts = facts.unwrap_or_else(|error| {
        let name = &spec.name;
        tracing::warn!(model = %name, %error, "the provider does not tell its capabilities");
        ModelFacts::default()
    });
    // The smaller window counts: requests larger than the provider's window would be refused.
    let least = spec.max_output_tokens + 1;
    let window = facts.max_input_tokens.unwrap_or(spec.context_window).max(least);
    spec.context_window = spec.context_window.min(window);
    let room = spec.context_window.saturating_sub(spec.max_output_tokens);
    let chosen = strategy::choose(strategy, Preference::Client, room, &facts.capabilities);
    let is_asked = !matches!(strategy.wanted, Wanted::Auto | Wanted::Client);
    if matches!(used, Use::Called) && is_asked && chosen == Strategy::Client {
        let wanted = strategy.wanted.name();
        tracing::warn!(model = %spec.name, wanted, "strategy not supported: the client compacts");
    }
    let mut service = ModelService::new(spec, model, retry);
    service.shares_pauses = rules.shares_pauses;
    service.waits_for_quota = rules.quota.on != OnQuota::Fail;
    service.believe(facts.capabilities, holds_to_schema);
    service
}

/// Tells the gateways which quotas an earlier process of the run found used up.
pub(super) fn close_quotas(gateways: &mut [GatewaySettings], quotas: &Quotas) {
    let now = jiff::Timestamp::now().as_millisecond();
    for gateway in gateways {
        let closed = quotas.closed(&gateway.provider);
        gateway.closed_for = closed.map(|closed| {
            let left = closed.until_ms.saturating_sub(now).max(0);
            Duration::from_millis(left.unsigned_abs())
        });
    }
}

/// Returns the secrets that no record may contain: keys, also those in addresses, secret headers, the
/// entries of `[secrets]`, and the variables of commands that look like credentials or that the
/// configuration names and whose value may be a secret.
pub(super) fn redacted(config: &Config) -> Secrets {
    let providers = config.providers.values();
    let headers = providers.clone().flat_map(|provider| provider.secret_headers.values());
    let headers = headers.flat_map(|value| texts_of_header(value.expose()));
    let keys = providers.filter_map(|provider| provider.key.as_ref());
    let keys = keys.chain(config.secrets.values()).map(|key| key.expose().to_owned());
    let addresses = config.providers.values();
    let addresses = addresses.flat_map(|provider| texts_of_address(&provider.base_url));
    let passed = environment(config).into_iter();
    let passed = passed.filter(|(name, value)| is_secret(name, value));
    let passed = passed.map(|(_, value)| value);
    let granted = environment::passed(&config.sandbox.env).into_iter();
    let granted = granted.filter(|(name, _)| !environment::is_passed_to_all(name));
    let granted = granted.flat_map(|(_, value)| texts_of_variable(&value));
    let of_notices = environment::passed(&config.notify.env).into_iter();
    let of_notices = of_notices.filter(|(name, _)| !environment::is_passed_to_all(name));
    let of_notices = of_notices.flat_map(|(_, value)| texts_of_variable(&value));
    let of_notices = of_notices.chain(config.notify.secrets());
    let all = keys.chain(headers).chain(addresses).chain(passed).chain(granted);
    Secrets::new(all.chain(of_notices))
}

/// The variables by which a program finds the desktop of the user.
const DESKTOP: [&str; 4] =
    ["DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"];

/// Returns whom the run tells, with an environment that holds no key but those that are named.
fn teller(config: &Config) -> Teller {
    let notify = &config.notify;
    let webhook = notify.webhook.as_ref().and_then(|hook| {
        let secret = hook.secret.as_ref().map(|secret| Key::new(secret.expose()));
        Webhook::new(hook.url.expose(), secret, hook.allow_private, notify.timeout)
    });
    Teller {
        command: notify.command.clone(),
        folder: config.root.clone(),
        env: environment::passed(&notify.env),
        desktop_env: environment::passed(&DESKTOP.map(str::to_owned)),
        webhook,
        timeout: notify.timeout,
    }
}

/// Returns the program that runs commands for this one, if there is one.
fn wrapper_program(options: &Options) -> Option<PathBuf> {
    options.wrapper.clone().or_else(Wrapper::this_program)
}

/// Returns the environment variables of commands: those that are passed on, and those that the
/// configuration sets.
fn environment(config: &Config) -> BTreeMap<String, String> {
    let mut variables = environment::passed(&config.sandbox.env);
    variables.extend(config.env.clone());
    variables
}

/// Returns these variables, and those by which Git does without the person's files of settings, which
/// the sandbox hides.
fn environment_of_commands(config: &Config) -> BTreeMap<String, String> {
    let mut variables = environment(config);
    if config.sandbox.mode != SandboxMode::DangerFullAccess {
        let of_git = toolchains::git_variables(&variables);
        variables.extend(of_git);
    }
    variables
}

/// Returns the names of the variables that every command gets, sorted.
pub(super) fn variables_of_commands(config: &Config) -> Vec<String> {
    environment_of_commands(config).into_keys().collect()
}

/// Returns the number of processors.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

fn opening(path: &Path, source: std::io::Error) -> StartError {
    StartError::Workspace { what: path.display().to_string(), source }
}

fn workspace(config: &Config, protected: &[PathBuf]) -> Result<Workspace, StartError> {
    let opened = Workspace::open(&config.root);
    let mut workspace = opened.map_err(|source| opening(&config.root, source))?;
    workspace = workspace.protect(&config.state_dir);
    workspace = workspace.keep(protected, &sandbox::named(config));
    for root in &config.read_only_roots {
        let with = workspace.with_read_only_root(root);
        workspace = with.map_err(|source| opening(root, source))?;
    }
    Ok(workspace)
}

/// Makes the client of a provider.
pub(super) fn client(spec: &ProviderSpec) -> Result<Arc<dyn Client>, StartError> {
    let failed = |reason: String| StartError::Provider { provider: spec.name.clone(), reason };
    let endpoint = || {
        let mut endpoint = Endpoint::new(spec.base_url.clone());
        if let Some(key) = &spec.key {
            endpoint = endpoint.with_key(key.expose());
        }
        for (name, value) in &spec.headers {
            endpoint.headers.push((name.clone(), value.expose().to_owned()));
        }
        for (name, value) in &spec.secret_headers {
            endpoint.secret_headers.push((name.clone(), Key::new(value.expose())));
        }
        endpoint.connect_timeout = spec.connect_timeout;
        endpoint.first_byte_timeout = spec.first_byte_timeout;
        endpoint.idle_timeout = spec.idle_timeout;
        endpoint.request_timeout = Some(spec.request_timeout);
        endpoint
    };
    Ok(match &spec.kind {
        ProviderKind::Anthropic => {
            let client = Anthropic::new(endpoint()).map_err(|error| failed(error.to_string()))?;
            let cache_for = if spec.caches_for_hour { CacheFor::Hour } else { CacheFor::default() };
            Arc::new(client.caching_for(cache_for))
        }
        ProviderKind::OpenAi => Arc::new(
            OpenAi::new(endpoint(), spec.profile).map_err(|error| failed(error.to_string()))?,
        ),
        ProviderKind::OpenAiResponses => Arc::new(
            Responses::new(endpoint(), spec.profile).map_err(|error| failed(error.to_string()))?,
        ),
        ProviderKind::Scripted { script } => {
            let text = std::fs::read_to_string(script);
            let text = text.map_err(|error| failed(format!("{}: {error}", script.display())))?;
            let parsed = Script::parse(&text);
            let parsed = parsed.map_err(|error| failed(format!("{}:{error}", script.display())))?;
            Arc::new(Scripted::new(parsed).of_file(script))
        }
    })
}
