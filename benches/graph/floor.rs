//! The floor: the same graph as plain tokio tasks with a journal that commits in groups.
//!
//! No actors, no retries, no limits but the slots. A task waits for those that it depends on and for
//! a slot. It records what callsheet records of a task, in the same four steps that have to be durable.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::SLOTS;
use crate::group::Journal;

/// Runs the graph.
pub(crate) fn run(needs: &[Vec<usize>], journal: &Path) {
    let (journal, writer) = Journal::start(journal);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let (journal, slots) = (Arc::new(journal), Arc::new(Semaphore::new(SLOTS)));
        let ends: Vec<_> = needs.iter().map(|_| watch::channel(false)).collect();
        let mut running = JoinSet::new();
        for (task, needs) in needs.iter().enumerate() {
            let awaited: Vec<_> = needs.iter().map(|need| ends[*need].1.clone()).collect();
            let end = ends[task].0.clone();
            let (journal, slots) = (journal.clone(), slots.clone());
            running.spawn(async move {
                for mut awaited in awaited {
                    awaited.wait_for(|ended| *ended).await.expect("it ends");
                }
                let _slot = slots.acquire().await.expect("slots");
                for commit in commits(task) {
                    journal.append(commit).await;
                }
                end.send_replace(true);
            });
        }
        drop(ends);
        running.join_all().await;
    });
    drop(runtime);
    writer.join().expect("the writer does not panic");
}

/// What is recorded of a task, in the steps that have to be durable before the next: the records of
/// callsheet, with the same data.
fn commits(task: usize) -> [Vec<u8>; 4] {
    let name = format!("t{task}");
    let record = |kind: &str, data: Value| {
        let ts = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
        json!({"ts": ts, "task": name, "agent": name, "type": kind, "data": data})
    };
    let prompt = format!("Do part {task}.");
    let program = json!({"model": {"agent": "worker", "prompt": prompt}});
    let usage = json!({"input": 20, "output": 1, "cache_read": 0, "cache_write": 0});
    let reply = json!({"role": "assistant", "content": [{"type": "text", "text": "done"}]});
    let requested = json!({"turn": 1, "model": "default", "messages": 1, "bytes": 63});
    let responded = json!({
        "turn": 1, "model": "default", "message": reply, "stop": "end_turn", "usage": usage
    });
    let outcome = json!({"completed": {"output": {"text": "done"}}});
    [
        lines(&[
            record("task.ready", json!({})),
            record("task.started", json!({"attempt": 1, "agent": name})),
            record("agent.spawned", json!({"program": program, "depth": 0})),
        ]),
        lines(&[record("turn.started", json!({"turn": 1})), record("model.requested", requested)]),
        lines(&[record("model.responded", responded)]),
        lines(&[
            record("agent.ended", json!({"outcome": outcome, "turns": 1, "usage": usage})),
            record("task.completed", json!({"attempt": 1, "output": {"text": "done"}})),
        ]),
    ]
}

fn lines(records: &[Value]) -> Vec<u8> {
    let mut lines = Vec::new();
    for record in records {
        serde_json::to_writer(&mut lines, record).expect("JSON");
        lines.push(b'\n');
    }
    lines
}
