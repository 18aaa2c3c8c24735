//! Images and PDFs that an agent reads, on each protocol and under a small window.

use callsheet::message::media::attachments;
use callsheet::tool::ToolOutput;
use callsheet::turn::Effect;
use serde_json::{Value, json};

use crate::support::asked::{Asked, Wire};
use crate::support::faults::{Act, Fake, FakeTool, Setup};
use crate::support::test_run::{Host, TestRun};

const GIF: &str = "GIF89a, as far as anybody looks";
/// The file in base64.
const DATA: &str = "R0lGODlhLCBhcyBmYXIgYXMgYW55Ym9keSBsb29rcw==";

const SCRIPT: &str = r#"
[[rules]]
turn = 1
calls = [{ tool = "read_file", input = { path = "shot.gif" } }]
[[rules]]
turn = 2
say = "a cat"
"#;

/// Runs an agent that reads an image; returns what its second request says.
async fn after_reading(wire: Wire, media: &str) -> Vec<Value> {
    let agents = format!(
        "[models.worker]\nmedia = {media}\n[agents.worker]\ntools = [\"read_file\"]\n\
         [tasks.look]\nagent = \"worker\"\nprompt = \"What is on shot.gif?\"\n"
    );
    let run = TestRun::new(&agents).script(SCRIPT).on(Host::Loopback(wire)).file("shot.gif", GIF);
    let ended = run.run().await;
    assert_eq!(ended.output("look"), "a cat");
    let asked: &Asked = &ended.requests[1];
    asked.json()["messages"].as_array().expect("messages").clone()
}

#[tokio::test]
async fn an_image_reaches_the_model_on_each_protocol() {
    let messages = after_reading(Wire::Anthropic, "[\"image\"]").await;
    let result = &messages.last().expect("a message")["content"][0];
    assert_eq!(result["type"], "tool_result", "{result}");
    assert_eq!(result["content"][0]["text"], "shot.gif: image/gif, 31 bytes");
    let source = json!({"type": "base64", "media_type": "image/gif", "data": DATA});
    assert_eq!(result["content"][1]["source"], source, "{result}");

    let messages = after_reading(Wire::OpenAi, "[\"image\", \"pdf\"]").await;
    let [.., result, shown] = messages.as_slice() else { panic!("{messages:?}") };
    assert_eq!(result["content"], "shot.gif: image/gif, 31 bytes", "{result}");
    let url = format!("data:image/gif;base64,{DATA}");
    assert_eq!(shown["content"][1]["image_url"]["url"], url.as_str(), "{shown}");
}

#[tokio::test]
async fn a_model_without_eyes_is_told_so() {
    for wire in Wire::BOTH {
        let messages = after_reading(wire, "[\"pdf\"]").await;
        let text = Value::from(messages).to_string();
        assert!(text.contains("which you cannot read") && !text.contains(DATA), "{text}");
    }
}

/// The windows hold ten or thirty images; the agent looks at sixty.
#[tokio::test]
async fn a_window_does_not_overflow_with_images() {
    let looks = || {
        Fake::new(|request| match request.turn {
            _ if request.agent.as_str() == "compactor" => Act::say("It looked at many pictures."),
            61.. => Act::say("seen"),
            turn => Act::tool("look", json!({ "turn": turn })),
        })
    };
    let look = FakeTool::new("look", Effect::Pure, |count, _| async move {
        let picture = callsheet::message::media::Attachment::of("image/png", b"\x89PNG").block();
        let output = ToolOutput::ok(format!("picture {count}"));
        Ok(ToolOutput { attached: Some(picture), ..output })
    });
    // A window that is full again after three turns is given up by the design of `production`.
    for (preset, window) in [("adaptive", 20_000), ("production", 60_000), ("three-layer", 60_000)]
    {
        let looks = looks();
        let agents = format!(
            "[models.main]\ncontext_window = {window}\nmax_output_tokens = 2_000\nmedia = [\"image\"]\n\
             [compaction]\npreset = \"{preset}\"\n\
             [agents.worker]\nmodel = \"main\"\ninstructions = \"Look.\"\ntools = [\"look\"]\n\
             max_turns = 100\n[tasks.work]\nagent = \"worker\"\nprompt = \"Look at all.\"\n"
        );
        let ended = Setup::new().model("main", &looks).tool(&look).run(&agents).await;
        assert_eq!(ended.output("work"), "seen", "{preset}");
        let sent = looks.sent_by("work");
        let most = sent.iter().map(|view| view.iter().flat_map(attachments).count()).max();
        // An image is taken for 1,600 tokens.
        let room = (window - 2_000) / 1_600;
        assert!(most.is_some_and(|most| (3..=room).contains(&most)), "{preset}: {most:?}");
    }
}
