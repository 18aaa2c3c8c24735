//! Turns `[notify]` into who is told of runs, and what that needs trust for.

use std::time::Duration;

use super::compaction::check_program;
use super::diagnostic::NO_HELP;
use super::keys::{self, Secret};
use super::raw::{HeaderValue, KeySource};
use super::shape::{Field, Item};
use super::{Missing, Setting};
use crate::model::webhook::Webhook;
use crate::spec::notices::{Channel, NoticeKind, NoticePolicy};

/// Who is told of runs.
#[derive(Clone, Debug, Default)]
pub struct NotifySpec {
    /// What is told, and when.
    pub policy: NoticePolicy,
    /// The program that is told, with its arguments; empty for none.
    pub command: Vec<String>,
    /// The names of the variables that the program gets beside those of all.
    pub env: Vec<String>,
    /// The server that is told.
    pub webhook: Option<WebhookSpec>,
    /// The longest time that one attempt may take.
    pub timeout: Duration,
}

/// A server that is told of runs.
#[derive(Clone, Debug)]
pub struct WebhookSpec {
    /// The address. It may hold a key.
    pub url: Secret,
    /// The secret of the signature.
    pub secret: Option<Secret>,
    /// True if the server may have a private address.
    pub allow_private: bool,
}

impl NotifySpec {
    /// Returns the texts that no record and no notice may contain.
    pub fn secrets(&self) -> impl Iterator<Item = String> {
        let webhook = self.webhook.iter();
        let of_address = webhook.clone().flat_map(|hook| {
            // A part of the path is the key of many services.
            let url = hook.url.expose();
            let path = url.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
            let path = path.map(|(_, path)| path).filter(|path| path.len() >= SHORTEST_PATH);
            [Some(url), path].into_iter().flatten().map(str::to_owned)
        });
        let secrets = webhook.filter_map(|hook| hook.secret.as_ref());
        of_address.chain(secrets.map(|secret| secret.expose().to_owned()))
    }
}

/// The shortest path of an address that may be a key: a shorter one is a word, which texts hold for other reasons.
const SHORTEST_PATH: usize = 12;

/// Turns `[notify]` into values.
pub(super) fn notify(setting: Setting<'_>) -> NotifySpec {
    let raw = &setting.raw.notify;
    if let Some(at) =
        raw.command.at().filter(|_| !raw.command.is_wrong() && !raw.command.is_empty())
    {
        check_program("command", &raw.command, at, setting);
    }
    let webhook = webhook(setting);
    let desktop = raw.desktop.then_some(Channel::Desktop);
    let channels = [
        (!raw.command.is_empty()).then_some(Channel::Command),
        webhook.as_ref().map(|_| Channel::Webhook),
        desktop,
    ];
    let on = raw.on.as_ref().map(|kinds| kinds.iter().map(|kind| kind.value).collect());
    NotifySpec {
        policy: NoticePolicy {
            on: on.unwrap_or_else(|| NoticeKind::ALL.into_iter().collect()),
            channels: channels.into_iter().flatten().collect(),
            after: *raw.after,
            stalled_after: *raw.stalled_after,
            wait: *raw.wait,
            attempts: *raw.attempts,
            pause: *raw.pause,
        },
        command: words(&raw.command),
        env: words(&raw.env),
        webhook,
        timeout: *raw.timeout,
    }
}

fn words(field: &Field<Vec<Item<String>>>) -> Vec<String> {
    field.iter().map(|word| word.value.clone()).collect()
}

fn webhook(setting: Setting<'_>) -> Option<WebhookSpec> {
    let (raw, problems) = (&setting.raw.notify.webhook, setting.problems);
    if let Some((source, at)) = raw.secret.as_ref().zip(raw.secret.at()) {
        keys::check_source("secret", source, at, setting);
    }
    let secret = raw.secret.as_ref().and_then(|source| present(source, setting));
    let Some((url, at)) = raw.url.as_ref().zip(raw.url.at()) else {
        if let Some(at) = raw.secret.at().or(raw.allow_private.at()) {
            let message = "the webhook has no `url`";
            problems.error("missing_field", &at.key, message, "add `url = \"https://...\"`");
        }
        return None;
    };
    let url = match url {
        HeaderValue::Written(url) => Secret::new(url.as_str()),
        HeaderValue::Read(source) => {
            keys::check_source("url", source, at, setting);
            // Without it nothing can be sent, and a look at the file needs none.
            present(source, setting)?
        }
    };
    if Webhook::new(url.expose(), None, false, Duration::ZERO).is_none() {
        let message = "`url` is no address of http or https";
        problems.error("bad_value", &at.value, message, NO_HELP);
        return None;
    }
    Some(WebhookSpec { url, secret, allow_private: *raw.allow_private })
}

/// Reads a secret. One that is missing is an error where a run begins.
fn present(source: &KeySource, setting: Setting<'_>) -> Option<Secret> {
    match keys::of_source(source, setting) {
        Ok(secret) => secret,
        Err(_) if setting.sources.missing_keys == Missing::Allow => None,
        Err(none) => {
            setting.problems.error("missing_key", &none.place, none.message, none.help);
            None
        }
    }
}

/// Names what `[notify]` does outside of the sandbox.
pub(super) fn concerns(setting: Setting<'_>) {
    let (raw, problems) = (&setting.raw.notify, setting.problems);
    if let Some(Item { at, .. }) = raw.command.first() {
        let text = format!(
            "`{}` runs outside of the sandbox, with the network, when a run needs a person or ends",
            words(&raw.command).join(" ")
        );
        problems.concern(&at.value, text);
    }
    for Item { value: name, at } in raw.env.iter() {
        let text = format!("the command of `[notify]` gets the variable `{name}`");
        problems.concern(&at.value, text);
    }
    let hook = &raw.webhook;
    if let Some((url, at)) = hook.url.as_ref().zip(hook.url.at()) {
        let whose = match url {
            HeaderValue::Written(url) => format!("`{url}`"),
            HeaderValue::Read(source) => source_in_words(source),
        };
        let private = if *hook.allow_private { ", also at a private address" } else { "" };
        let text = format!("questions, failures and ends of runs are sent to {whose}{private}");
        problems.concern(&at.value, text);
    }
    if let Some((source, at)) = hook.secret.as_ref().zip(hook.secret.at()) {
        let whose = source_in_words(source);
        problems.concern(&at.value, format!("the requests of the webhook are signed with {whose}"));
    }
    if let (true, Some(at)) = (*raw.desktop, raw.desktop.at()) {
        let text = "notices are shown by `notify-send`, outside of the sandbox";
        problems.concern(&at.value, text);
    }
}

fn source_in_words(source: &KeySource) -> String {
    let given = [("the variable", &source.env), ("the secret", &source.secret)];
    let found =
        given.iter().find_map(|(what, name)| Some(format!("{what} `{}`", name.as_deref()?)));
    let file = || Some(format!("the content of `{}`", source.file.as_deref()?));
    found.or_else(file).unwrap_or_default()
}
