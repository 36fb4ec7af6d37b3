//! `snavio doctor` checks the same conditions that a node on the embedded engine would meet.

use serde_json::json;

use crate::shell::Shell;

/// Command line (10-interfaces)
#[test]
fn doctor_reports_each_problem_with_its_fix() {
    use std::os::unix::fs::PermissionsExt;

    let shell = Shell::new();
    let broken = shell.write("broken.toml", "[gate]\ndispatch = \"warm\"\n");
    let ended = shell.run(&format!("doctor --config {broken} --output json"));
    assert_eq!(ended.code, Some(1));
    assert!(ended.json().to_string().contains("gate.dispatch"), "{}", ended.out);

    let occupied = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = occupied.local_addr().expect("it has an address");
    let admin_occupied = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let admin_port = admin_occupied.local_addr().expect("it has an address");
    let settings = format!(
        "[server]\nlisten = \"{port}\"\ntls_cert = \"no.pem\"\ntls_key = \"no.pem\"\n[admin]\nlisten = \"{admin_port}\"\n\
         [store]\nurl = \"embedded:data\"\ndisk_free_bytes_min = {}\n",
        i64::MAX
    );
    let config = shell.write("snavio.toml", &settings);
    std::fs::create_dir(shell.path("data")).expect("a folder can be made");
    std::fs::set_permissions(shell.path("data"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let key = shell.write("data/platform.key", &format!("{}=\n", "A".repeat(43)));
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("its mode can be set");
    shell.write("data/snavio.db", "this is no store, only a text of some length");
    let ended = shell.run(&format!("doctor --config {config} --output json"));
    assert_eq!(ended.code, Some(1));
    let findings = ended.json();
    let finding_of = |check: &str| {
        let found = findings.as_array().into_iter().flatten().find(|finding| finding["check"] == check);
        found.cloned().unwrap_or_else(|| panic!("no finding about {check} in {findings}"))
    };
    for (check, word, fix) in [
        ("secrets", "platform.key is open to others", "chmod 600"),
        ("privacy", "data is open to others", "chmod 700"),
        ("port", "in use", "server.listen"),
        ("store", "not a database", "restore"),
        ("admin port", "in use", "admin.listen"),
        ("tls", "no.pem", "server.tls_cert"),
        ("disk", "store.disk_free_bytes_min", "free some space"),
        ("clock", "cannot ask the store", "mend the store first"),
    ] {
        let finding = finding_of(check);
        let (result, advice) =
            (finding["result"].as_str().unwrap_or_default(), finding["mend"].as_str().unwrap_or_default());
        assert!(result.contains(word) && advice.contains(fix), "{finding}");
    }

    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("its mode can be set");
    std::fs::write(&key, "no key").unwrap();
    let findings = shell.run(&format!("doctor --config {config} --output json")).json();
    assert!(findings.to_string().contains("does not hold 32 bytes"), "{findings}");

    drop(occupied);
    std::fs::remove_file(&key).expect("it can be removed");
    std::fs::remove_file(shell.path("data/snavio.db")).expect("it can be removed");
    let settings = format!("[server]\nlisten = \"{port}\"\n[store]\nurl = \"embedded:data\"\n");
    let config = shell.write("snavio.toml", &settings);
    let findings = shell.run(&format!("doctor --config {config} --output json")).json();
    for check in ["secrets", "port", "store", "clock", "tls", "admin port"] {
        let found = findings.as_array().into_iter().flatten().find(|finding| finding["check"] == check);
        assert_eq!(found.map(|finding| &finding["result"]), Some(&json!("ok")), "{findings}");
    }
}
