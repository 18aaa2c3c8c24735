//! Clients of a run: in its process and over its control socket, an operation does the same and is acknowledged, and
//! each update comes once.

use callsheet::event::Event;
use callsheet::run::RunEnd;
use callsheet::turn::question::PersonsAnswer;
use callsheet::{
    Acknowledgement, AgentId, CancelTarget, Client, ClientError, Cursor, DeltaLine, Given, Launch,
    Operation, Parts, Run, Script, Scripted, Update, Updates,
};

use crate::support::test_run::soon;

/// An agent that asks again and again, until it hears `stop`.
const AGENTS: &str = "version = 1\n[agents.worker]\ntools = ['ask_person']\n\
                      [permissions]\ndefault = 'allow'\n\
                      [tasks.job]\nagent = 'worker'\nprompt = 'Ask.'\n";

const SCRIPT: &str = "[[rules]]\nturn = 1\nsay = 'First.'\ncalls = [{ tool = 'ask_person', input = { question = 'More?' } }]\n\
                      [[rules]]\nwhen = \"'stop' in last[0].text\"\nsay = 'All done.'\n\
                      [[rules]]\nsay = 'Again.'\ncalls = [{ tool = 'ask_person', input = { question = 'More?' } }]\n";

async fn start(folder: &std::path::Path) -> Run {
    let model = Scripted::new(Script::parse(SCRIPT).expect("a script"));
    let launch = Launch::text(AGENTS, folder).model("default", model).expect("a name");
    launch.stays_open().start().await.expect("it starts")
}

fn answer(id: &str, text: &str, by: &str) -> PersonsAnswer {
    let (id, text, by) = (id.to_owned(), Some(text.to_owned()), by.to_owned());
    PersonsAnswer { id, allowed: true, text, by }
}

async fn given(client: &Client, answer: PersonsAnswer) -> Given {
    soon("what became of it", client.answer(answer)).await.expect("somebody can tell")
}

/// Reads on to the next question, and returns its id; `None` at the end of the run.
async fn next_question(updates: &mut Updates, seen: &mut Vec<Update>) -> Option<String> {
    while let Some(update) = soon("an update", updates.next()).await.expect("it can be read") {
        seen.push(update.clone());
        if let Update::Record(record) = update
            && let Event::ApprovalAsked(asked) = &record.event
        {
            return Some(asked.id.clone());
        }
    }
    None
}

fn seqs(updates: &[Update]) -> Vec<u64> {
    let seq = |update: &Update| match update {
        Update::Record(record) => Some(record.seq),
        Update::Part(_) | Update::NoParts(_) => None,
    };
    updates.iter().filter_map(seq).collect()
}

fn texts(updates: &[Update]) -> Vec<String> {
    let text = |update: &Update| match update {
        Update::Part(part) => match &**part {
            DeltaLine::Text { text, .. } => Some(text.clone()),
            _ => None,
        },
        Update::Record(_) | Update::NoParts(_) => None,
    };
    updates.iter().filter_map(text).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_carriers_give_every_record_and_take_every_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = start(folder.path()).await;
    let (here, elsewhere) = (run.client(), Client::of(run.recorded().clone()));
    let mut in_process = here.updates(Cursor::START, Parts::All).expect("records");
    let mut over_socket = elsewhere.updates(Cursor::START, Parts::All).expect("records");
    let (mut seen, mut seen_elsewhere) = (Vec::new(), Vec::new());
    let ended = tokio::spawn(run.wait());
    let (mut rounds, mut last) = (0, String::new());
    while let Some(id) = next_question(&mut in_process, &mut seen).await {
        rounds += 1;
        assert!(rounds < 1_000, "texts never came over the socket");
        let same = next_question(&mut over_socket, &mut seen_elsewhere).await;
        assert_eq!(same.as_ref(), Some(&id));
        // Its connection stands at some time after the first question.
        let text = if texts(&seen_elsewhere).is_empty() { "more" } else { "stop" };
        let (first, second) = match rounds % 2 {
            0 => (&here, &elsewhere),
            _ => (&elsewhere, &here),
        };
        assert_eq!(given(first, answer(&id, text, "first")).await, Given::Counted);
        // Over the socket the kernel says who answers: this process, whatever it calls itself.
        let again = given(second, answer(&id, "other", "second")).await;
        assert!(matches!(again, Given::Late { allowed: true, .. }), "{again:?}");
        last = id;
    }
    assert!(next_question(&mut over_socket, &mut seen_elsewhere).await.is_none());
    assert!(matches!(ended.await.expect("no panic"), RunEnd::Completed(_)));
    assert_eq!(seqs(&seen), (1..=seqs(&seen).len() as u64).collect::<Vec<_>>());
    assert_eq!(seqs(&seen_elsewhere), seqs(&seen));
    // In the process each part of a reply comes before the record of the reply, and none is missed.
    assert_eq!(texts(&seen).last().map(String::as_str), Some("All done."));
    let mut unheard = 0;
    for update in &seen {
        match update {
            Update::Part(part) if matches!(&**part, DeltaLine::Text { .. }) => unheard += 1,
            Update::Record(record) if matches!(record.event, Event::ModelResponded(_)) => {
                // The first reply may have begun before this client listened.
                assert!(unheard == 1 || record.seq < 12, "{record:?}");
                unheard = 0;
            }
            _ => {}
        }
    }
    // Nobody drives the run any more: the records say what became of the question.
    let late = given(&elsewhere, answer(&last, "late", "third")).await;
    assert!(matches!(late, Given::Late { .. }), "{late:?}");
    let compact = Operation::Compact { agent: AgentId::from_text("job"), focus: None };
    let interrupt = Operation::Interrupt { reason: "late".to_owned() };
    let cancel = Operation::Cancel { target: CancelTarget::Run, reason: None };
    for client in [&here, &elsewhere] {
        for operation in [&compact, &interrupt, &cancel] {
            let refused = client.send(operation.clone()).await;
            assert!(matches!(refused, Err(ClientError::NotDriven)), "{operation:?}: {refused:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_carriers_cancel_compact_and_interrupt() {
    for over_socket in [false, true] {
        for stop in ["cancel", "interrupt"] {
            let folder = tempfile::tempdir().expect("a folder");
            let run = start(folder.path()).await;
            let here = run.client();
            let client =
                if over_socket { Client::of(run.recorded().clone()) } else { here.clone() };
            let mut updates = here.updates(Cursor::START, Parts::None).expect("records");
            let question = next_question(&mut updates, &mut Vec::new()).await;
            assert!(question.is_some(), "it asks");
            let agent = |name: &str| AgentId::from_text(name);
            let compact = |name| Operation::Compact { agent: agent(name), focus: None };
            for (operation, expected) in [
                (compact("nobody"), Acknowledgement::NotFound),
                (compact("job"), Acknowledgement::Taken { busy: None }),
                (
                    Operation::Cancel {
                        target: CancelTarget::Agent(agent("nobody")),
                        reason: None,
                    },
                    Acknowledgement::NotFound,
                ),
            ] {
                let said = soon("an answer", client.send(operation.clone())).await;
                assert_eq!(said.expect("acknowledged"), expected, "{over_socket} {operation:?}");
            }
            let reason = "the test is over".to_owned();
            let operation = match stop {
                "cancel" => {
                    Operation::Cancel { target: CancelTarget::Run, reason: Some(reason.clone()) }
                }
                _ => Operation::Interrupt { reason: reason.clone() },
            };
            let ended = tokio::spawn(run.wait());
            let said = soon("an answer", client.send(operation)).await.expect("acknowledged");
            assert_eq!(said, Acknowledgement::Taken { busy: None });
            match soon("the end", ended).await.expect("no panic") {
                RunEnd::Completed(_) => assert_eq!(stop, "cancel"),
                RunEnd::Paused(paused) => {
                    assert_eq!(stop, "interrupt");
                    let by = if over_socket { "interrupted by" } else { &reason };
                    assert!(paused.reason.contains(by), "{paused:?}");
                }
                other => panic!("{other:?}"),
            }
            let (state, _) = client.run().state(|_| {});
            let text = format!("{state:?}");
            assert_eq!(text.contains(&reason), stop == "cancel" || !over_socket);
        }
    }
}
