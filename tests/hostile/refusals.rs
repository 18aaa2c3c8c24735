//! What the sandbox refused a command is named with the key that would allow it, through the real binary.

use std::process::Command;

use crate::support::desk::{Desk, lines};

/// Returns true if `check` says this of the sandbox here; otherwise says what is skipped.
fn has_sandbox(desk: &Desk, told: &str) -> bool {
    use std::io::Write;
    let said = desk.call(&["check"]).out;
    let has = said.contains(told);
    if !has {
        // It is not captured, so that everybody reads it.
        let _ = writeln!(std::io::stderr(), "SKIPPED: there is no such sandbox here: {said}");
    }
    has
}

/// Returns true if there are such programs here.
fn has(program: &str) -> bool {
    let tried = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    tried.is_ok_and(|output| output.status.success())
}

/// Returns the message of each of these tasks, all of which fail.
fn messages<const N: usize>(desk: &Desk, tasks: [&str; N]) -> [String; N] {
    let done = desk.call(&["run", "--json", "--trust", "--keep-going"]);
    let events = lines(&done.out);
    let last = &events.last().expect("events")["data"]["tasks"];
    tasks.map(|task| {
        let message = last[task]["error"]["message"].as_str();
        message.unwrap_or_else(|| panic!("{task}: {}", last[task])).to_owned()
    })
}

/// Asks the proxy for tunnels to these hosts, and fails.
fn tunnels(hosts: &[&str]) -> String {
    let ask = |host: &&str| {
        format!(
            "exec 3<>/dev/tcp/127.0.0.1/${{HTTPS_PROXY##*:}}; printf \"CONNECT {host} HTTP/1.1\\r\\n\\r\\n\" >&3; \
             cat <&3; exec 3>&-; "
        )
    };
    format!("bash -c '{}exit 7'", hosts.iter().map(ask).collect::<String>())
}

#[test]
fn a_host_that_the_proxy_refuses_is_named_with_its_key() {
    if !has("bash") {
        return;
    }
    let many: Vec<String> = (0..20).map(|number| format!("h{number}.example:443")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let toml = |command: String| serde_json::Value::from(command);
    let desk = Desk::commands(&format!(
        "[sandbox]\nnetwork = ['named.example:443']\n\
         [tasks.one]\nrun = {}\n[tasks.many]\nrun = {}\n[tasks.hostile]\nrun = {}\n",
        toml(tunnels(&["Refused.example:443", "refused.example:443"])),
        toml(tunnels(&many)),
        toml(tunnels(&["a.b\\033[31m:443", "x\\042]:443"])),
    ));
    if !has_sandbox(&desk, "network only to named.example:443") {
        return;
    }
    let [one, many, hostile] = messages(&desk, ["one", "many", "hostile"]);
    let told = "exit code 7; the sandbox refused refused.example:443: commands reach only named.example:443; beside these, \
                `[sandbox] network = [\"refused.example:443\"]` allows more";
    assert!(one.ends_with(told), "{one}");
    assert!(many.contains("h0.example:443, h1.example:443, "), "{many}");
    assert!(many.contains(", h7.example:443 and others: "), "{many}");
    assert!(!many.contains("h8.example"), "{many}");
    assert!(hostile.ends_with("exit code 7"), "what is no host is not named: {hostile}");
    let shown = desk.good(&["show", "/one"]);
    assert!(shown.contains("the sandbox refused refused.example:443"), "{shown}");
}

#[test]
fn a_socket_of_this_machine_and_a_namespace_are_not_taken_for_the_network() {
    if !has("perl") || !has("unshare") {
        return;
    }
    let connect = "perl -MSocket -e 'my $s; socket($s, AF_UNIX, SOCK_STREAM, 0) && connect($s, \
                   pack_sockaddr_un(\"/run/x.sock\")) or die \"/run/x.sock: $!\"'";
    let desk = Desk::commands(&format!(
        "[tasks.socket]\nrun = {}\n[tasks.namespace]\nrun = 'unshare -Ur true'\n\
         [tasks.written]\nrun = 'echo x > agents.toml'\n\
         [tasks.passing]\nrun = 'echo websocket_test on the network ... FAILED >&2; exit 1'\n",
        serde_json::Value::from(connect),
    ));
    if !has_sandbox(&desk, "workspace-write, no network") {
        return;
    }
    let tasks = ["socket", "namespace", "written", "passing"];
    let [socket, namespace, written, passing] = messages(&desk, tasks);
    assert!(socket.contains("the sandbox may be the cause: commands "), "{socket}");
    assert!(socket.contains("(AF_UNIX); `[sandbox] network = true` allows them"), "{socket}");
    assert!(namespace.contains("the sandbox may be the cause: commands make no namespaces"));
    assert!(namespace.contains("no key of `[sandbox]` allows that"), "{namespace}");
    assert!(written.contains("`writable_roots` of `[sandbox]` allows more"), "{written}");
    assert!(!passing.contains("sandbox"), "{passing}");
}

#[test]
fn a_limit_that_a_program_meets_is_named() {
    if !has("perl") {
        return;
    }
    let open = "perl -e 'for (1 .. 100) { open(my $f, \"<\", \"/dev/null\") or die \"/dev/null: $!\"; push @all, $f }'";
    let take = "perl -e '$n = 400_000_000; $x = \"x\" x $n'";
    let desk = Desk::commands(&format!(
        "[sandbox.limits]\nmemory = '256MiB'\nopen_files = 40\n[tasks.open]\nrun = {}\n[tasks.take]\nrun = {}\n",
        serde_json::Value::from(open),
        serde_json::Value::from(take),
    ));
    if !has_sandbox(&desk, "workspace-write, no network") {
        return;
    }
    let [open, take] = messages(&desk, ["open", "take"]);
    assert!(open.contains("no more than `open_files` in `[sandbox.limits]` allows"), "{open}");
    assert!(take.contains("no more than `memory` in `[sandbox.limits]` allows"), "{take}");
}
