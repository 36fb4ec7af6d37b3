use super::*;

fn problems(sources: &Sources) -> Vec<String> {
    Config::load(sources).expect_err("the configuration is wrong").0
}

fn file(content: &str) -> Sources {
    Sources { file: Some(("snavio.toml".into(), content.into())), ..Sources::default() }
}

#[test]
fn without_any_source_it_is_the_documented_default() {
    let config = Config::load(&Sources::default()).unwrap();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8080");
    let keys: Vec<_> = config.platform_keys.iter().map(KeySource::name).collect();
    assert_eq!(keys, [PathBuf::from("./snavio-data/platform.key")]);
    assert_eq!(config.gate.window, bounds::REPLAY_WINDOW);
    assert_eq!(config.queue_depth_max, bounds::QUEUE_DEPTH_MAX);
    assert_eq!(config.body_bytes_max, bounds::BODY_BYTES_DEFAULT);
    let room = Room::default();
    assert_eq!(config.gate.room.items_max, room.items_max);
    assert_eq!(config.gate.room.bytes_max, room.bytes_max);
}

#[test]
fn flags_win_over_the_environment_which_wins_over_the_file() {
    let mut sources =
        file("[server]\nlisten = \"127.0.0.1:1\"\nconnections_max = 5\n[log]\nfilter = \"warn\"");
    sources.environment.insert("SNAVIO_SERVER_LISTEN".into(), "127.0.0.1:2".into());
    sources.environment.insert("SNAVIO_LOG_FILTER".into(), "debug".into());
    sources.environment.insert("SNAVIO_SERVER_HOSTS".into(), "a.example, b.example".into());
    sources.environment.insert("SNAVIO_TOKEN".into(), "for the client".into());
    sources.flags.push(("server.listen".into(), "127.0.0.1:3".into()));
    let config = Config::load(&sources).unwrap();
    assert_eq!(config.server.listen.port(), 3);
    assert_eq!(config.server.connections_max, 5);
    assert_eq!(config.log_filter, "debug");
    let names = ["a.example".to_owned(), "b.example".to_owned()];
    assert_eq!(config.server.hosts, Hosts::new(&names).unwrap());
}

#[test]
fn an_unknown_setting_is_an_error_with_the_nearest_name() {
    let mut sources = file("[server]\nlisten_adress = \"x\"");
    sources.environment.insert("SNAVIO_SERVER_LISEN".into(), "x".into());
    let problems = problems(&sources);
    assert_eq!(
        problems[0],
        "snavio.toml: server.listen_adress is not a setting; did you mean server.listen?"
    );
    assert_eq!(problems[1], "SNAVIO_SERVER_LISEN is not a setting; did you mean SNAVIO_SERVER_LISTEN?");
}

#[test]
fn all_problems_are_told_at_once() {
    let told = problems(&file(
        "[server]\nlisten = \"here\"\ntls_cert = \"c.pem\"\n[store]\nurl = \"mysql://x\"\n\
         [gate]\ndispatch = \"warm\"\nbody_bytes_max = 2000000",
    ));
    assert_eq!(told.len(), 5, "{told:?}");
}

#[test]
fn listeners_need_ports_of_their_own() {
    for (api, admin, is_refused) in [
        ("127.0.0.1:8080", "127.0.0.1:8080", true),
        ("0.0.0.0:8080", "127.0.0.1:8080", true),
        ("127.0.0.1:8080", "[::]:8080", true),
        ("127.0.0.1:8080", "[::ffff:127.0.0.1]:8080", true),
        ("127.0.0.1:8080", "127.0.0.2:8080", false),
        ("127.0.0.1:8080", "127.0.0.1:8081", false),
        ("127.0.0.1:0", "127.0.0.1:0", false),
    ] {
        let file = file(&format!("[server]\nlisten = \"{api}\"\n[admin]\nlisten = \"{admin}\""));
        match is_refused {
            true => assert!(problems(&file)[0].contains("give one of them another port"), "{api} {admin}"),
            false => assert!(Config::load(&file).is_ok(), "{api} {admin}"),
        }
    }
}

#[test]
fn a_password_is_hidden_wherever_it_stands() {
    for (url, shown) in [
        ("postgres://me:s3cret@db/x", "postgres://me:***@db/x"),
        ("postgres://me:s3c/r@t@db/x", "postgres://me:***@db/x"),
        ("postgres://me@db/x", "postgres://me@db/x"),
        ("postgres://db/x?user=me&password=s3cret", "postgres://db/x?user=me&password=***"),
        ("postgres://db:5432/x?password=s3c@ret&a=b", "postgres://db:5432/x?password=***"),
        ("postgres://me:s3cret@db/x?password=s3cret", "postgres://me:***@db/x?password=***"),
        ("postgres:me:s3cret@db/x", "postgres:me:***@db/x"),
        ("embedded:./data:2@disk", "embedded:./data:2@disk"),
    ] {
        assert_eq!(without_password(url), shown);
        let told = file(&format!("[store]\nurl = \"{url}\"")).shown().unwrap();
        assert_eq!(told["store"]["url"].as_str(), Some(shown));
    }
}

#[test]
fn a_database_needs_connections_beside_those_of_its_batches() {
    let with = |connections: usize, batches: usize, url: &str| {
        file(&format!(
            "[store]\nurl = \"{url}\"\nconnections_max = {connections}\nbatches_at_once = {batches}"
        ))
    };
    assert!(Config::load(&with(7, 4, "postgres://db/x")).is_ok());
    assert!(Config::load(&with(5, 4, "embedded:data")).is_ok());
    assert_eq!(
        problems(&with(6, 4, "postgres://db/x")),
        ["store.connections_max is 6; use at least 7, three more than store.batches_at_once"]
    );
}

#[test]
fn a_negative_value_is_named() {
    assert_eq!(
        problems(&file("[server]\nconnections_max = -5")),
        ["snavio.toml: server.connections_max is -5; no setting is negative"]
    );
}

#[test]
fn a_value_of_another_type_is_named() {
    assert_eq!(
        problems(&file("[gate]\nbody_bytes_max = \"large\"")),
        ["snavio.toml: gate.body_bytes_max must be of type integer, not string"]
    );
}

/// CLM-15
#[test]
fn the_archive_is_a_place_or_nowhere() {
    assert!(Config::load(&Sources::default()).unwrap().archive.is_none());
    let told = problems(&file("[archive]\nurl = \"ftp://x\""));
    assert!(told.len() == 1 && told[0].contains("archive.url is \"ftp://x\""), "{told:?}");
    let mut sources = Sources::default();
    sources.environment.insert("SNAVIO_ARCHIVE_URL".into(), "s3://bucket/claims".into());
    sources.environment.insert("AWS_SECRET_ACCESS_KEY".into(), "canary".into());
    let archive = Config::load(&sources).unwrap().archive.unwrap();
    assert_eq!((archive.url.as_str(), archive.options.len()), ("s3://bucket/claims", 1));
    assert!(!format!("{archive:?}").contains("canary"));
}

/// REG-20, REG-21
#[test]
fn snapshots_need_a_place_and_an_environment_and_keep_credentials_to_themselves() {
    assert!(Config::load(&Sources::default()).unwrap().snapshot.is_none());
    let told = problems(&file("[snapshot]\nurl = \"ftp://x\"\ninterval_seconds = 61\nttl_seconds = 0"));
    assert_eq!(told.len(), 4, "{told:?}");

    let mut sources =
        file("[snapshot]\nurl = \"s3://bucket/prod\"\nenvironment = \"prod\"\nregion = \"eu-west-1\"");
    sources.environment.insert("AWS_REGION".into(), "us-east-1".into());
    sources.environment.insert("AWS_SECRET_ACCESS_KEY".into(), "canary".into());
    let snapshot = Config::load(&sources).unwrap().snapshot.unwrap();
    assert_eq!((snapshot.interval, snapshot.preload), (Duration::from_secs(45), true));
    assert_eq!(snapshot.bytes_max, bounds::SNAPSHOT_BYTES_DEFAULT);
    let last = snapshot.place.options.last().unwrap();
    assert_eq!((last.0.as_str(), last.1.as_str()), ("AWS_REGION", "eu-west-1"), "a setting wins");
    assert!(!format!("{snapshot:?}").contains("canary"));
}

/// REG-13
#[test]
fn a_platform_key_is_taken_from_the_environment_and_shown_nowhere() {
    let mut sources = Sources::default();
    sources.environment.insert("SNAVIO_PLATFORM_KEY".into(), "s3cret".into());
    sources.environment.insert("SNAVIO_PLATFORM_SECOND_KEY_FILE".into(), "next.key".into());
    let config = Config::load(&sources).unwrap();
    let names: Vec<_> = config.platform_keys.iter().map(|it| it.name().display().to_string()).collect();
    assert_eq!(names, ["platform.key", "next.key"]);
    assert!(!format!("{config:?}").contains("s3cret"));
    let shown = sources.shown().unwrap();
    assert_eq!(shown["platform"]["key"].as_str(), Some("***"));
    sources.environment.insert("SNAVIO_PLATFORM_KEY_FILE".into(), "this.key".into());
    assert_eq!(problems(&sources), ["platform.key and platform.key_file are given; give one of them"]);
    let told = problems(&file("[platform]\nsecond_key = \"s3cret\""));
    assert!(told.len() == 1 && told[0].contains("environment") && !told[0].contains("s3cret"), "{told:?}");
}

/// ORD-3
#[test]
fn order_has_the_names_of_its_story_in_the_environment() {
    let loaded = |variables: &[(&str, &str)]| {
        let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let sources = Sources { environment: environment.collect(), ..Sources::default() };
        Config::load(&sources).map(|it| it.gate.order)
    };
    let usual = OrderDefaults::default();
    assert_eq!(loaded(&[]).unwrap(), usual);
    assert_eq!(usual, OrderDefaults { enabled: true, strict: false, ttl: Duration::from_secs(24 * 3600) });
    for prefix in ["", "SNAVIO_"] {
        let named = |name: &str| format!("{prefix}{name}");
        let (enabled, strict, ttl) =
            (named("ENABLE_SEQUENCE_VALIDATION"), named("STRICT_ORDERING"), named("SEQUENCE_TTL_HOURS"));
        let order = loaded(&[(&enabled, "false"), (&strict, "true"), (&ttl, "2")]).unwrap();
        assert_eq!(order, OrderDefaults { enabled: false, strict: true, ttl: Duration::from_secs(7200) });
        let problems = loaded(&[(&strict, "perhaps")]).unwrap_err().0;
        assert!(problems[0].starts_with(&strict), "{problems:?}");
    }
    assert!(loaded(&[("SNAVIO_ORDER_TTL_HOURS", "0")]).is_err());
}
