//! What people see of a run with many tasks: a screen, failures first; JSON stays complete.

use crate::support::desk::Desk;

#[test]
fn many_tasks_are_folded_for_people_and_complete_in_json() {
    let mut tasks = String::from("[limits]\nmax_concurrency = 64\n");
    for n in 0..300 {
        let run = if n == 17 { "echo broken; exit 3" } else { "true" };
        tasks.push_str(&format!("[tasks.part{n:03}]\nrun = '{run}'\n"));
    }
    let all: Vec<_> = (0..300).map(|n| format!("'part{n:03}'")).collect();
    tasks.push_str(&format!("[tasks.end]\ndepends_on = [{}]\nrun = 'true'\n", all.join(", ")));
    let desk = Desk::commands(&tasks);
    let done = desk.call(&["run", "--keep-going"]);
    assert_eq!(done.code, 8, "{}", done.err);
    let lines: Vec<_> = done.out.lines().collect();
    assert!(lines.len() < 20, "{}", done.out);
    assert!(lines[0].starts_with("part017") && lines[0].contains("exit code 3"), "{}", done.out);
    assert_eq!(lines[1], "    | broken");
    let folded = "part000 … part299  completed  299 tasks";
    assert!(done.out.contains(folded), "{}", done.out);
    let tree = desk.good(&["ps", "--tree"]);
    assert!(tree.lines().count() < 10, "{tree}");
    assert!(tree.contains("299 tasks") && tree.contains("@part017"), "{tree}");
    let graph = desk.good(&["graph", "desk"]);
    assert!(graph.lines().count() < 5, "{graph}");
    assert!(graph.contains("299 tasks") && graph.contains("<- part000 … part299"), "{graph}");
    assert_eq!(desk.json(&["ps", "--json"]).len(), 1 + 301 + 300);
    assert_eq!(desk.json(&["graph", "desk", "--format", "json"])[0]["tasks"][300]["name"], "end");
}
