//! The command line (docs/spec/10-interfaces.md): examples, exit codes, JSON output, helpful errors, and the
//! commands against a real node.

use std::process::Stdio;

use reqwest::Method;
use serde_json::{Value, json};

use crate::engine::Engine;
use crate::node::{Launch, Node, binary};
use crate::patience::poll;
use crate::shell::Shell;

const REGISTRY: &str = r#"
[[tenants]]
name = "acme"

[[services]]
name = "acme/billing"

[[services]]
name = "acme/bot"

[[routes]]
target = "acme/bot"
name = "notify"
queue = "inbox"
dead_letter_queue = "dead"
receives_max = 1

[[grants]]
source = "acme/billing"
target = "acme/bot"
name = "notify"
"#;

fn commands_in_help(help: &str) -> Vec<String> {
    let commands =
        help.split("Commands:").nth(1).unwrap_or_default().split("Options:").next().unwrap_or_default();
    let lines = commands.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Command line (10-interfaces)
#[test]
fn every_command_has_help_with_an_example() {
    let shell = Shell::new();
    let commands = commands_in_help(&shell.run("--help").out);
    assert!(commands.len() >= 12, "{commands:?}");
    let mut all: Vec<String> = Vec::new();
    for command in commands {
        let nested = commands_in_help(&shell.run(&format!("{command} --help")).out);
        all.extend(nested.iter().map(|name| format!("{command} {name}")));
        all.push(command);
    }
    for command in all {
        let help = shell.run(&format!("{command} --help"));
        assert_eq!(help.code, Some(0), "{command}");
        let example = format!("Example: snavio {}", command.split(' ').next().unwrap_or_default());
        assert!(help.out.contains(&example), "{command} has no example:\n{}", help.out);
    }
}

/// Command line (10-interfaces)
#[test]
fn exit_codes_separate_success_failure_and_misuse() {
    let shell = Shell::new();
    let credentials = shell.write("c.json", &credentials().to_string());
    for (line, code) in [
        ("--version", 0),
        ("serve --print-config", 0),
        ("completions bash", 0),
        ("get routes --url http://127.0.0.1:1 --token x", 1),
        ("get routes --url http://127.0.0.1:1", 1),
        ("backup --data nowhere --to copy.db", 1),
        ("restore --from nowhere.db --data here", 1),
        ("", 2),
        ("recieve", 2),
        ("get", 2),
        ("get everything", 2),
        ("receive --max", 2),
        ("serve --listne 1", 2),
        ("serve --listen nonsense", 2),
        ("dead-letters list", 1),
        ("ack inbox 1:1", 2),
        ("--output yaml get routes", 2),
    ] {
        let ended = shell.run(line);
        assert_eq!(ended.code, Some(code), "{line:?}: {ended:?}");
        let output = if code == 0 { &ended.out } else { &ended.err };
        assert!(!output.is_empty(), "{line:?} prints nothing");
    }
    for line in [
        format!("ack -c {credentials} inbox not-a-receipt"),
        format!("ack -c {credentials} inbox 1:x"),
        format!("emit -c {credentials} --target acme/bot --name notify --id 7 {{}}"),
        format!("emit -c {credentials} --target a/b/c --name notify {{}}"),
        format!("emit -c {credentials} --target acme/bot --name no/name {{}}"),
    ] {
        let ended = shell.run(&line);
        assert_eq!(ended.code, Some(2), "{line:?}: {ended:?}");
    }
}

fn credentials() -> Value {
    json!({
        "source": "acme/billing", "client_id": "snavcl_x", "client_secret": "snavcs_x", "hmac_version": "hmac-v1",
        "hmac_secret": format!("whsec_{}=", "A".repeat(43)),
    })
}

/// Command line (10-interfaces)
#[test]
fn typo_is_answered_with_the_nearest_name() {
    let shell = Shell::new();
    let error = shell.run("recieve inbox").err;
    assert!(error.contains("'receive'"), "{error}");
    let file =
        shell.write("snavio.toml", "[server]\nlisten_adress = \"127.0.0.1:1\"\n[gate]\nbody_byte_max = 1\n");
    let ended = shell.run(&format!("serve --config {file}"));
    assert_eq!(ended.code, Some(1));
    for nearest in ["did you mean server.listen?", "did you mean gate.body_bytes_max?"] {
        assert!(ended.err.contains(nearest), "{}", ended.err);
    }
    let error = Shell::new().with("SNAVIO_SERVER_LISEN", "x").run("serve").err;
    assert!(error.contains("did you mean SNAVIO_SERVER_LISTEN?"), "{error}");
}

/// Command line (10-interfaces)
#[test]
fn printed_configuration_is_a_usable_file() {
    let shell = Shell::new().with("SNAVIO_GATE_REPLAY_WINDOW_SECONDS", "45");
    let file = shell.write("snavio.toml", "[server]\nlisten = \"127.0.0.1:1\"\nconnections_max = 7\n");
    let printed = shell.run(&format!("serve --config {file} --listen 127.0.0.1:2 --print-config"));
    assert_eq!(printed.code, Some(0), "{}", printed.err);
    let table: toml::Table = printed.out.parse().expect("the output is TOML");
    assert_eq!(table["server"]["listen"].as_str(), Some("127.0.0.1:2"), "a flag wins");
    assert_eq!(table["server"]["connections_max"].as_integer(), Some(7));
    assert_eq!(table["gate"]["replay_window_seconds"].as_integer(), Some(45));
    let again = shell.write("printed.toml", &printed.out);
    assert_eq!(shell.run(&format!("serve --config {again} --print-config")).out, printed.out);
}

/// Command line (10-interfaces)
#[test]
fn client_variables_do_not_stop_a_node() {
    let names = ["URL", "TOKEN", "CREDENTIALS", "CA"].map(|name| format!("SNAVIO_{name}"));
    let shell = names.iter().fold(Shell::new(), |shell, name| shell.with(name, "x"));
    let printed = shell.run("serve --print-config");
    assert_eq!(printed.code, Some(0), "{}", printed.err);
    let help: String =
        ["get", "emit", "receive"].map(|command| shell.run(&format!("{command} --help")).out).concat();
    for name in names {
        assert!(help.contains(&name), "a client command reads {name}");
    }
}

/// Command line (10-interfaces)
#[test]
fn url_needs_no_scheme() {
    let node = Node::start();
    let address = node.url().strip_prefix("http://").unwrap();
    let port = address.rsplit_once(':').unwrap().1;
    for url in [address.to_owned(), format!("localhost:{port}"), format!("http://{address}/")] {
        let shell = Shell::at(&node).with("SNAVIO_URL", "http://127.0.0.1:1");
        let ended = shell.run(&format!("status --url {url}"));
        assert_eq!(ended.code, Some(0), "{url}: {}", ended.err);
        assert_eq!(Shell::at(&node).with("SNAVIO_URL", &url).run("status").code, Some(0), "{url}");
    }
    // The client does not send a token to another machine without TLS.
    let ended = Shell::at(&node).run("status --url nowhere.invalid:8080");
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("https://nowhere.invalid:8080"), "{}", ended.err);
}

/// Command line (10-interfaces)
#[test]
fn tables_have_no_borders_without_a_terminal() {
    let node = Node::start();
    let shell = Shell::at(&node);
    let file = shell.write("registry.toml", REGISTRY);
    assert_eq!(shell.run(&format!("apply -f {file} --credentials-dir keys")).code, Some(0));
    let routes = shell.run("get routes").out;
    assert!(routes.is_ascii(), "{routes}");
    let lines: Vec<Vec<_>> = routes.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines.len(), 2, "a header and a row: {routes}");
    assert!(routes.lines().all(|line| !line.starts_with(' ') && !line.ends_with(' ')), "{routes:?}");
    assert!(lines[1].contains(&"acme/bot") && lines[1].contains(&"notify"), "{routes}");
}

/// Command line (10-interfaces)
#[test]
fn closed_output_never_panics() {
    let node = Node::start();
    let shell = Shell::at(&node);
    let file = shell.write("registry.toml", REGISTRY);
    assert_eq!(shell.run(&format!("apply -f {file} --credentials-dir keys")).code, Some(0));
    let [billing, bot] = ["billing", "bot"].map(|name| shell.path(&format!("keys/acme/{name}.json")));
    let emit = format!("emit -c {billing} --target acme/bot --name notify {{}}");
    let mut lines: Vec<String> = commands_in_help(&shell.run("--help").out);
    lines.iter_mut().for_each(|line| line.push_str(" --help"));
    lines.extend(
        [
            "--help",
            "--version",
            "man",
            "completions bash",
            "completions zsh",
            "completions fish",
            "completions elvish",
            "completions powershell",
            "demo --exit",
            "serve --print-config",
            "get tenants",
            "get services",
            "get routes",
            "get grants",
            "status",
            "claims list",
            "conflicts list",
            "dead-letters list",
            "bans list",
            "holds list",
            "erasures list",
            "tokens list",
            "grants requests",
            "adapters list",
            "keys list acme/bot",
            "audit show",
            "audit verify",
            "platform-key show",
            "doctor",
            "recieve",
        ]
        .map(str::to_owned),
    );
    lines.push(format!("sign -c {billing} --target acme/bot --name notify {{}}"));
    lines.push(emit.clone());
    lines.push(format!("receive -c {bot} inbox --max 10"));
    for line in lines {
        for line in [line.clone(), format!("{line} --output json")] {
            let without_errors = shell.run_unheard(&line);
            assert!(!matches!(without_errors, None | Some(101)), "{line}: {without_errors:?}");
            let ended = shell.run_closed(&line);
            assert!(!ended.err.contains("panicked") && ended.code != Some(101), "{line}: {ended:?}");
            assert!(ended.code.is_some(), "{line}: {ended:?}");
        }
    }
}

/// Command line (10-interfaces)
#[test]
fn receive_acknowledges_only_what_was_printed() {
    let node = Node::start();
    let shell = Shell::at(&node);
    let file = shell.write("registry.toml", &REGISTRY.replace("receives_max = 1", "receives_max = 5"));
    assert_eq!(shell.run(&format!("apply -f {file} --credentials-dir keys")).code, Some(0));
    let [billing, bot] = ["billing", "bot"].map(|name| shell.path(&format!("keys/acme/{name}.json")));
    let emit = format!("emit -c {billing} --target acme/bot --name notify {{}}");
    assert_eq!(shell.run(&emit).code, Some(0));
    let receive = format!("receive -c {bot} inbox --visibility 1 --wait 20 --ack --output json");
    let ended = shell.run_closed(&receive);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("none was acknowledged"), "{}", ended.err);
    let again = shell.run(&receive);
    assert_eq!(again.code, Some(0), "{}", again.err);
    assert_eq!(again.json().as_array().map(Vec::len), Some(1), "the message is delivered again");
}

/// Command line (10-interfaces)
#[test]
fn completions_know_the_commands() {
    let shell = Shell::new();
    for name in ["bash", "zsh", "fish"] {
        let completions = shell.run(&format!("completions {name}")).out;
        assert!(completions.contains("dead-letters") && completions.contains("restore"), "{name}");
    }
}

/// Command line (10-interfaces)
#[test]
fn man_page_knows_the_commands() {
    let page = Shell::new().run("man").out;
    assert!(page.contains(".TH snavio 1") && page.contains("dead\\-letters"), "{page}");
}

/// Command line (10-interfaces)
#[test]
fn demo_outputs_json() {
    let tour = Shell::new().run("demo --exit --output json").json();
    let statuses: Vec<_> =
        tour["verdicts"].as_array().unwrap().iter().map(|verdict| verdict["status"].clone()).collect();
    assert_eq!(json!(statuses), json!([202, 200, 202, 401, 401, 403, 404, 400, 413]));
    assert_eq!(tour["deliveries"].as_array().map(Vec::len), Some(2));
    // About one message in a hundred also produces a record of its clock skew.
    let is_sample = |record: &&Value| record["type"] == "snavio.telemetry.skew_sample";
    let records: Vec<_> =
        tour["telemetry"].as_array().unwrap().iter().filter(|record| !is_sample(record)).collect();
    let failed = records.iter().filter(|record| record["type"] == "snavio.command.failed").count();
    assert_eq!((records.len(), failed), (8, 1), "each of acme's messages has its record: {records:?}");
}

/// Command line (10-interfaces)
#[tokio::test]
async fn command_travels_by_the_command_line_alone() {
    let node = Node::start();
    let shell = Shell::at(&node);
    let file = shell.write("registry.toml", REGISTRY);

    let planned =
        shell.run(&format!("apply -f {file} --dry-run --credentials-dir none --output json")).json();
    assert!(!std::path::Path::new(&shell.path("none")).exists(), "a dry run makes no folder");
    assert_eq!(planned["dry_run"], true);
    let applied = shell.run(&format!("apply -f {file} --why first --credentials-dir keys --output json"));
    assert_eq!(applied.code, Some(0), "{}", applied.err);
    assert!(!applied.out.contains("whsec_"), "secrets go to their files");
    assert_eq!(applied.json()["changes"].as_array().map(Vec::len), Some(9));
    let again = shell.run(&format!("apply -f {file}"));
    assert!(again.out.starts_with("nothing to change"), "{}", again.out);
    let (billing, bot) = ("keys/acme/billing.json", "keys/acme/bot.json");
    check_mode(&shell, billing);

    let emitted = shell.run_words(&[
        "emit",
        "-c",
        billing,
        "--target",
        "bot",
        "--name",
        "notify",
        "--output",
        "json",
        r#"{"user": "u-1"}"#,
    ]);
    assert_eq!(emitted.json()["path"], "fast", "{}", emitted.err);
    let refused = shell.run_words(&["emit", "-c", billing, "--target", "bot", "--name", "other", "{}"]);
    assert_eq!((refused.code, refused.err.contains("acl-deny")), (Some(1), true), "{refused:?}");
    assert!(refused.err.contains("ask the target's owner for a grant"), "{refused:?}");
    assert!(!refused.err.contains("a retry must use the same"), "{refused:?}");
    let words = ["emit", "-c", billing, "--target", "bot", "--name", "other", "{}", "--output", "json"];
    let error: Value = serde_json::from_str(&shell.run_words(&words).err).expect("JSON for programs");
    assert_eq!(error["problem"]["reason"], "acl-deny", "{error}");

    let received = shell.run(&format!("receive -c {bot} inbox --wait 5 --visibility 0 --output json")).json();
    assert_eq!(received[0]["id"], emitted.json()["id"]);
    assert!(
        received[0]["command"].as_str().is_some_and(|command| command.contains(r#"{"user": "u-1"}"#)),
        "{received}"
    );
    // Its only receive is used up, so the next receive makes it a dead letter.
    assert_eq!(shell.run(&format!("receive -c {bot} inbox --output json")).json(), json!([]));
    let letter = poll("a dead letter", || {
        let listed = shell.run(&format!("dead-letters list -c {bot} --output json")).json();
        listed["items"].as_array().and_then(|items| items.first().cloned())
    });
    assert_eq!(letter["reason"], "receives_exhausted");
    let shown = shell.run(&format!("dead-letters -c {bot} show {} --output json", letter["id"])).json();
    assert_eq!(shown["content"]["command"]["payload"], json!({ "user": "u-1" }));
    let redriven =
        shell.run(&format!("dead-letters -c {bot} redrive {} --why mended --output json", letter["id"]));
    assert_eq!((redriven.code, redriven.json()["redriven"].clone()), (Some(0), json!(1)));
    assert_eq!(shell.run(&format!("dead-letters -c {bot} redrive {}", letter["id"])).code, Some(1));

    let received = shell.run(&format!("receive -c {bot} inbox --output json")).json();
    let receipt = received[0]["receipt"].as_str().unwrap_or_default().to_owned();
    let acknowledged = shell.run(&format!("ack -c {bot} inbox {receipt} --output json")).json();
    assert_eq!(acknowledged["results"][0]["outcome"], "done");
    let again = shell.run(&format!("ack -c {bot} inbox {receipt} 7:8 --output json"));
    assert_eq!(again.json()["results"][0]["outcome"], "gone");
    assert_eq!((again.code, again.err.contains("7 is gone")), (Some(1), true), "{again:?}");

    for kind in ["tenants", "services", "routes", "grants", "keys", "clients", "changes"] {
        let shown = shell.run(&format!("get {kind} --output json"));
        assert_eq!(shown.code, Some(0), "{kind}: {}", shown.err);
        shown.json();
        assert_eq!(shell.run(&format!("get {kind}")).code, Some(0), "{kind}");
    }
    assert_eq!(shell.run("get routes --output json").json()[0]["queue"], "inbox");
    assert_eq!(shell.run("status --output json").json()["nodes"].as_array().map(Vec::len), Some(1));
    assert!(shell.run("status").out.contains(node.url().trim_start_matches("http://")));
}

fn check_mode(shell: &Shell, file: &str) {
    use std::os::unix::fs::PermissionsExt;

    let mode =
        std::fs::metadata(shell.path(file)).expect("the credentials were written").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only the owner can read {file}");
}

/// MSG-3, command line (10-interfaces)
#[tokio::test]
async fn message_signed_by_the_command_line_is_accepted() {
    let node = Node::start();
    let shell = Shell::at(&node);
    let file = shell.write("registry.toml", REGISTRY);
    shell.run(&format!("apply -f {file} --credentials-dir keys"));
    let billing = "keys/acme/billing.json";
    let words = ["sign", "-c", billing, "--target", "acme/bot", "--name", "notify", r#"{"n": 1.0}"#];
    let signed = shell.run_words(&words);
    let text = std::fs::read_to_string(shell.path(billing)).expect("the credentials were written");
    let client = node.client(&serde_json::from_str(&text).expect("the credentials are JSON"));
    assert_eq!(crate::node::post(&client, signed.out.into_bytes()).await.0, 202);
    let explained = shell.run_words(&[&words[..], &["--explain"]].concat()).out;
    let lines: Vec<_> = explained.lines().collect();
    assert_eq!((lines[0], lines[1], lines.len()), ("SNAVIO1-HMAC-SHA256", "hmac-v1", 8), "{explained}");
    assert_eq!(&lines[4..7], ["acme/billing", "acme/bot", "notify"]);
}

/// REG-13
#[tokio::test]
async fn store_without_its_own_platform_key_is_not_served() {
    let mut node = Node::start();
    node.stop();
    let (key, token) = (node.secret("platform.key"), node.secret("operator.token"));
    let right = std::fs::read(&key).unwrap();
    let aside = node.folder().join("aside.key");
    std::fs::rename(&key, &aside).unwrap();
    node.try_restart(&Launch::default());
    assert_eq!(node.wait().code(), Some(1));
    assert!(node.said().contains("platform.key is missing"), "{}", node.said());
    assert!(!key.exists(), "the node makes no new key");
    std::fs::rename(&aside, &key).unwrap();
    node.restart(&Launch::default());
    let cast = node.cast().await;
    node.stop();

    std::fs::remove_file(&key).unwrap();
    std::fs::remove_file(&token).unwrap();
    node.try_restart(&Launch::default());
    assert_eq!((node.wait().code(), key.exists()), (Some(1), false));
    assert!(node.said().contains("put back your copy of it"), "{}", node.said());

    let other = Node::start();
    std::fs::copy(other.secret("platform.key"), &key).unwrap();
    node.try_restart(&Launch::default());
    assert_eq!(node.wait().code(), Some(1));
    assert!(node.said().contains("is another platform key than the one of this store"), "{}", node.said());

    std::fs::write(&key, right).unwrap();
    node.restart(&Launch::default());
    node.client(&cast.billing).authorized().await.expect("its secrets work again");
}

/// Command line (10-interfaces)
#[test]
fn used_port_leaves_no_store() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let used = listener.local_addr().unwrap();
    let free = "127.0.0.1:0";
    for (listen, admin) in [(used.to_string(), free.to_owned()), (free.to_owned(), used.to_string())] {
        let shell = Shell::new().with("SNAVIO_ADMIN_LISTEN", &admin);
        let engine = Engine::chosen();
        let store = match &engine {
            Engine::Embedded => "--data data".to_owned(),
            Engine::Postgres(database) => format!("--store {}", database.url),
        };
        let ended = shell.run(&format!("serve {store} --listen {listen}"));
        assert_eq!(
            (ended.code, ended.err.contains(&format!("cannot listen on {used}"))),
            (Some(1), true),
            "{ended:?}"
        );
        assert!(!std::path::Path::new(&shell.path("data")).exists(), "a half-made store is left");
        if let Engine::Postgres(database) = engine {
            let tables = database.ask("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'");
            assert_eq!(tables, "0", "a half-made store is left");
        }
    }
}

/// Command line (10-interfaces): either both nodes bind the port before one of them listens on it, or the
/// second node fails at once.
#[test]
fn two_nodes_on_one_port_leave_one_store() {
    for _ in 0..5 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let shell = Shell::new();
        let mut nodes = ["a", "b"].map(|data| {
            let words = ["serve", "--data", data, "--listen", &address.to_string()].map(str::to_owned);
            let mut command = shell.command(&words.each_ref().map(String::as_str));
            let node = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            (data, node)
        });
        let (refused, status) = poll("one of the nodes is refused", || {
            nodes.iter_mut().find_map(|(data, node)| Some((*data, node.try_wait().unwrap()?)))
        });
        assert_eq!(status.code(), Some(1));
        for (data, node) in &mut nodes {
            // In rare cases both nodes are refused.
            let is_refused = *data == refused || node.try_wait().unwrap().is_some();
            assert!(
                !is_refused || !std::path::Path::new(&shell.path(data)).exists(),
                "a half-made store is left"
            );
            let _ = node.kill();
            node.wait().unwrap();
        }
    }
}

/// CLM-20
#[tokio::test]
async fn replay_window_longer_than_claims_is_refused_with_arithmetic() {
    let mut node = Node::start();
    node.cast().await;
    node.stop();
    node.try_restart(&Launch::default().set("GATE_REPLAY_WINDOW_SECONDS", 121));
    assert_eq!(node.wait().code(), Some(1));
    let log = node.said();
    assert!(log.contains("route acme/bot:pay") && log.contains("2 × 121 s + 60 s = 302 s"), "{log}");
    node.restart(&Launch::default().set("GATE_REPLAY_WINDOW_SECONDS", 120));
}

/// Command line (10-interfaces)
#[test]
fn non_text_variables_and_closed_readers_stop_nothing() {
    use std::os::unix::ffi::OsStrExt;
    use std::process::{Command, Stdio};

    let odd = std::ffi::OsStr::from_bytes(b"caf\xe9");
    for words in [&["serve", "--print-config"][..], &["doctor", "--output", "json", "--data", "nowhere"]] {
        let plain = Command::new(binary()).args(words).output().unwrap();
        let text = |output: &[u8]| String::from_utf8_lossy(output).into_owned();
        assert!(
            matches!(plain.status.code(), Some(0 | 1)) && !plain.stdout.is_empty(),
            "{words:?}: {plain:?}"
        );
        let ended = Command::new(binary()).args(words).env("ODD", odd).env(odd, "x").output().unwrap();
        assert_eq!(ended.status.code(), plain.status.code(), "{words:?}: {}", text(&ended.stderr));
        assert_eq!(text(&ended.stdout), text(&plain.stdout), "{words:?}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(binary());
        let ended = command.args(words).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(ended.status.code(), plain.status.code(), "{words:?}: {}", text(&ended.stderr));
        assert_eq!(text(&ended.stderr), text(&plain.stderr), "{words:?}");
    }
}

/// Command line (10-interfaces)
#[tokio::test]
async fn credentials_are_never_lost() {
    let node = Node::start();
    let shell = Shell::at(&node);
    let file = shell.write("registry.toml", REGISTRY);
    // If the credentials cannot be written, nothing is registered.
    shell.write("taken", "");
    let ended = shell.run(&format!("apply -f {file} --credentials-dir taken"));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(shell.run("get services --output json").json(), json!([]));
    // An existing file is kept, and credentials that could not be written are printed.
    std::fs::create_dir_all(shell.path("keys/acme")).unwrap();
    let old = shell.write("keys/acme/billing.json", "an older one");
    let ended = shell.run(&format!("apply -f {file} --credentials-dir keys --output json"));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("acme/billing.json"), "{}", ended.err);
    assert_eq!(std::fs::read_to_string(old).unwrap(), "an older one");
    let shown = ended.json()["credentials"].clone();
    assert_eq!(
        (shown[0]["source"].as_str(), shown.as_array().map(Vec::len)),
        (Some("acme/billing"), Some(1))
    );
    node.client(&serde_json::from_value(shown[0].clone()).unwrap())
        .authorized()
        .await
        .expect("the credentials work");
    check_mode(&shell, "keys/acme/bot.json");
}

/// REG-4
#[tokio::test]
async fn registry_file_sets_dry_run_and_note() {
    let node = Node::start();
    let shell = Shell::at(&node);
    let dry = shell.write("dry.toml", &format!("dry_run = true\n{REGISTRY}"));
    assert_eq!(shell.run(&format!("apply -f {dry} --output json")).json()["dry_run"], true);
    assert_eq!(shell.run("get tenants --output json").json(), json!([]));
    let why = shell.write("why.toml", &format!("why = \"of the file\"\n{REGISTRY}"));
    assert_eq!(shell.run(&format!("apply -f {why} --credentials-dir keys")).code, Some(0));
    assert_eq!(shell.run("get changes --output json").json()["items"][0]["why"], "of the file");
}

/// ENG-2
#[tokio::test]
async fn node_refuses_a_key_file_readable_by_others() {
    use std::os::unix::fs::PermissionsExt;

    let mut node = Node::start();
    node.kill();
    let key = node.secret("platform.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("its mode can be set");
    node.try_restart(&Launch::default());
    let ended = node.wait();
    assert_eq!((ended.code(), node.said().contains("chmod 600")), (Some(1), true), "{}", node.said());
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("its mode can be set");
    node.restart(&Launch::default());
    assert!(node.operator().call(Method::GET, "/v1/status", None).await.is_ok());
}

/// REG-7
#[test]
fn requests_to_this_machine_bypass_the_proxy() {
    let node = Node::start();
    let shell =
        Shell::at(&node).with("HTTP_PROXY", "http://127.0.0.1:1").with("http_proxy", "http://127.0.0.1:1");
    let ended = shell.run("status --output json");
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// Command line (10-interfaces)
#[test]
fn password_in_the_configuration_is_masked() {
    let shell = Shell::new().with("SNAVIO_STORE_URL", "postgres://me:hidden/w@rd@db.example/snavio");
    let printed = shell.run("serve --print-config").out;
    assert!(
        printed.contains("postgres://me:***@db.example/snavio") && !printed.contains("hidden"),
        "{printed}"
    );
    let refused = shell.run("serve");
    assert_eq!((refused.code, refused.err.contains("hidden")), (Some(1), false), "{refused:?}");
    let shell = shell.with("SNAVIO_STORE_URL", "postgres://db.example/snavio?user=me&password=hidden-word");
    let printed = shell.run("serve --print-config").out;
    assert!(printed.contains("user=me&password=***") && !printed.contains("hidden"), "{printed}");
    let shell = shell.with("SNAVIO_STORE_URL", "mysql://me:hidden/w@rd@db.example/snavio");
    let refused = shell.run("serve");
    assert!(refused.err.contains("store.url") && !refused.err.contains("hidden"), "{refused:?}");
}
