//! Sends the notices of a run: by a program, by a webhook, or to the desktop.
//!
//! It works outside of the sandbox of commands, with the network and the environment of its own. Everything that it
//! sends is redacted. Decides nothing: the run machine says what is sent and when again.

use serde_json::json;

use super::services::{Services, Teller};
use crate::journal::stamp;
use crate::message::Json;
use crate::model::webhook::Attempt;
use crate::printable;
use crate::run_machine::NotSent;
use crate::spec::notices::{Channel, NoticeIntended, NoticeKind};
use crate::tool::outside::{self, NotDone};

/// The version of the JSON of a notice. Fields are only ever added.
const VERSION: u32 = 1;

/// The most characters of a notice that a desktop shows.
const ON_DESKTOP: usize = 300;

/// Makes one attempt to send a notice.
pub(super) async fn tell(
    services: &Services,
    notice: &NoticeIntended,
    attempt: u32,
) -> Result<(), NotSent> {
    let id = format!("{}-{}", services.run, notice.id);
    let sent = match notice.channel {
        Channel::Command => by_command(services, &id, notice, attempt).await,
        Channel::Webhook => by_webhook(services, &id, notice, attempt).await,
        Channel::Desktop => on_desktop(services, notice).await,
    };
    sent.map_err(|mut failed| {
        services.secrets.redact(&mut failed.error);
        failed
    })
}

/// Returns what is sent of a notice.
fn body(services: &Services, id: &str, notice: &NoticeIntended, attempt: u32) -> Json {
    let NoticeIntended { kind, state, text, task, agent, question, since_ms, .. } = notice;
    let mut fields = json!({
        "version": VERSION,
        "id": id,
        "run": services.run,
        "workflow": services.workflow,
        "kind": kind,
        "state": state,
        "text": text,
        "task": task,
        "agent": agent,
        "question": question,
        "since": stamp::text(*since_ms),
        "attempt": attempt,
        "next": next(services, notice),
    });
    services.secrets.redact_value(&mut fields);
    Json::encode(&fields)
}

/// Returns the command that leads on.
fn next(services: &Services, notice: &NoticeIntended) -> String {
    let run = services.run;
    match (notice.kind, &notice.question) {
        (NoticeKind::Question, Some(id)) => format!("callsheet answer {id} TEXT"),
        (NoticeKind::Permission | NoticeKind::Approval, Some(id)) => {
            format!("callsheet approve {id}")
        }
        (NoticeKind::Paused, _) if !matches!(notice.state.as_str(), "quota" | "disk_full") => {
            format!("callsheet resume {run}")
        }
        (NoticeKind::Finished, _) => format!("callsheet report {run}"),
        _ => format!("callsheet show {run}"),
    }
}

async fn by_command(
    services: &Services,
    id: &str,
    notice: &NoticeIntended,
    attempt: u32,
) -> Result<(), NotSent> {
    let Teller { command, folder, env, timeout, .. } = &services.teller;
    let mut env = env.clone();
    env.insert("CALLSHEET_NOTICE_ID".to_owned(), id.to_owned());
    env.insert("CALLSHEET_NOTICE_ATTEMPT".to_owned(), attempt.to_string());
    let input = body(services, id, notice, attempt).as_str().to_owned();
    outside::run(command, folder, &env, input, *timeout).await.map_err(not_done)
}

async fn by_webhook(
    services: &Services,
    id: &str,
    notice: &NoticeIntended,
    attempt: u32,
) -> Result<(), NotSent> {
    let Some(webhook) = &services.teller.webhook else {
        let error = "there is no webhook".to_owned();
        return Err(NotSent { error, is_final: true });
    };
    let body = body(services, id, notice, attempt).as_str().to_owned();
    let at_s = stamp::now_ms() / 1_000;
    let sent = webhook.post(Attempt { id, number: attempt, at_s, body }).await;
    sent.map_err(|refused| NotSent { error: refused.message, is_final: refused.is_final })
}

async fn on_desktop(services: &Services, notice: &NoticeIntended) -> Result<(), NotSent> {
    let Teller { folder, desktop_env, timeout, .. } = &services.teller;
    let (mut title, mut text) =
        (format!("{}: {}", services.workflow, notice.kind), notice.text.clone());
    services.secrets.redact(&mut title);
    services.secrets.redact(&mut text);
    let text: String = printable::line(&text).chars().take(ON_DESKTOP).collect();
    // Desktops read markup in the text.
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let title = printable::line(&title).into_owned();
    let argv = ["notify-send", "--app-name=callsheet", "--", &title, &text].map(str::to_owned);
    outside::run(&argv, folder, desktop_env, String::new(), *timeout).await.map_err(not_done)
}

fn not_done(failed: NotDone) -> NotSent {
    NotSent { error: failed.message, is_final: failed.is_missing }
}
