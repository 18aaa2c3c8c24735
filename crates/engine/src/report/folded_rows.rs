//! Folds the rows of `ps` for people: tasks and children that are alike share a row.

use super::Row;
use super::fold::{self, Group};
use crate::spending::Spending;
use crate::turn::Shortfalls;

/// Returns the rows of runs with few rows for many tasks: those in the same state, waiting for the
/// same, share one, and what failed comes first. Few tasks stay as they are.
#[must_use]
pub fn folded_rows(rows: Vec<Row>) -> Vec<Row> {
    fold_level(rows, 0)
}

/// Folds the rows of this depth, each with the deeper rows that follow it.
fn fold_level(rows: Vec<Row>, depth: usize) -> Vec<Row> {
    let mut parts: Vec<Vec<Row>> = Vec::new();
    for row in rows {
        match parts.last_mut() {
            Some(part) if row.depth > depth => part.push(row),
            _ => parts.push(vec![row]),
        }
    }
    // Runs are told apart by their ids and never share a row.
    if depth > 0 && parts.len() > fold::UNFOLDED {
        parts.sort_by_key(|part| rank(&part[0].state));
        return shared(parts, depth);
    }
    parts.into_iter().flat_map(|part| below(part, depth)).collect()
}

/// Folds the rows below the first one.
fn below(mut part: Vec<Row>, depth: usize) -> Vec<Row> {
    let deeper = part.split_off(1);
    part.extend(fold_level(deeper, depth + 1));
    part
}

fn shared(parts: Vec<Vec<Row>>, depth: usize) -> Vec<Row> {
    let keys: Vec<_> = parts
        .iter()
        .map(|part| (part[0].name.as_str(), (part[0].state.clone(), part[0].waiting_for.clone())))
        .collect();
    let groups = fold::fold(&keys);
    let mut parts: Vec<_> = parts.into_iter().map(Some).collect();
    let mut rows = Vec::new();
    for Group { label, members } in groups {
        let mut of: Vec<_> = members.into_iter().filter_map(|at| parts[at].take()).collect();
        if of.len() == 1 {
            rows.extend(of.pop().into_iter().flat_map(|part| below(part, depth)));
            continue;
        }
        let heads: Vec<_> = of.into_iter().map(|mut part| part.swap_remove(0)).collect();
        let Some(first) = heads.first().cloned() else { continue };
        let mut shortfalls = Shortfalls::default();
        heads.iter().for_each(|row| shortfalls.add(&row.shortfalls));
        let noun = if first.kind == "task" { "tasks" } else { "agents" };
        let waits = fold::same(heads.iter().map(|row| &row.waiting_for)).cloned().flatten();
        let waits = waits.map(|what| format!(": {what}")).unwrap_or_default();
        rows.push(Row {
            shown: label.clone(),
            name: label,
            key: None,
            state: fold::same(heads.iter().map(|row| row.state.as_str()))
                .unwrap_or("mixed")
                .to_owned(),
            turn: None,
            inclusive: None,
            spending: heads.iter().map(|row| row.spending).sum::<Spending>(),
            age_s: None,
            waiting_for: Some(format!("{} {noun}{waits}", fold::count(heads.len()))),
            shortfalls,
            ..first
        });
    }
    rows
}

/// The place of a state in a list: what failed, what is open, what is done.
pub(super) fn rank(state: &str) -> usize {
    const ORDER: [&str; 10] = [
        "failed",
        "cancelled",
        "waiting",
        "running",
        "stopped",
        "ready",
        "pending",
        "skipped",
        "completed",
        "reused",
    ];
    ORDER.iter().position(|known| *known == state).unwrap_or(ORDER.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &'static str, depth: usize, name: String, state: &str) -> Row {
        Row {
            kind,
            run: "r".to_owned(),
            shown: name.clone(),
            name,
            key: None,
            parent: None,
            state: state.to_owned(),
            turn: None,
            spending: Spending::default(),
            inclusive: None,
            age_s: None,
            waiting_for: None,
            shortfalls: Shortfalls::default(),
            started_ms: None,
            took: None,
            tasks: None,
            unprotected: None,
            untold: None,
            depth,
        }
    }

    #[test]
    fn many_tasks_and_many_children_share_rows() {
        let mut rows = vec![row("run", 0, "w".to_owned(), "running")];
        for n in 0..10_000 {
            let state = if n == 7 { "failed" } else { "completed" };
            rows.push(row("task", 1, format!("t[{n}]"), state));
            rows.push(row("agent", 2, format!("t[{n}]"), state));
        }
        rows.push(row("task", 1, "lead".to_owned(), "running"));
        rows.push(row("agent", 2, "lead".to_owned(), "waiting"));
        rows.extend((1..=100).map(|n| row("agent", 3, format!("lead/h-{n}"), "running")));
        let shown: Vec<_> = folded_rows(rows)
            .into_iter()
            .map(|row| format!("{} {} {} {:?}", row.depth, row.name, row.state, row.waiting_for))
            .collect();
        let wanted = [
            "0 w running None",
            "1 t[7] failed None",
            "2 t[7] failed None",
            "1 lead running None",
            "2 lead waiting None",
            "3 lead/h-1 … lead/h-100 running Some(\"100 agents\")",
            "1 t[0..6,8..9999] completed Some(\"9,999 tasks\")",
        ];
        assert_eq!(shown, wanted);
    }
}
