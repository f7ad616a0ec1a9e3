//! The configuration: a file, then the environment, then flags.

use std::path::Path;

use berth_domain::Span;
use berth_server::config::{Config, LogFormat, Sources};

fn example() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/berth.toml")
}

fn variables(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn the_example_says_every_default_and_nothing_else() {
    let config = Sources::default().file(&example()).unwrap().load().unwrap();
    assert_eq!(config, Config::default());
    let text = std::fs::read_to_string(example()).unwrap();
    let whole = toml::Table::try_from(Config::default()).unwrap();
    for (section, values) in &whole {
        for name in values.as_table().unwrap().keys() {
            let written = text.lines().any(|line| line.starts_with(&format!("{name} = ")));
            assert!(written, "{section}.{name} is not in the example");
        }
    }
}

#[test]
fn the_environment_overrides_the_file_and_flags_override_both() {
    let sources = Sources::default().file(&example()).unwrap();
    let sources = sources.environment(
        variables(&[
            ("BERTH_SCHEDULER__KEEP_ALIVE", "5m"),
            ("BERTH_LOG__FORMAT", "json"),
            ("BERTH_SERVER__LISTEN", "127.0.0.1:1"),
            ("BERTH_TOKEN", "not ours"),
            ("HOME", "/"),
        ])
        .into_iter(),
    );
    let config = sources.flag("server.listen", "--listen", Some("127.0.0.1:2".into())).load().unwrap();
    assert_eq!(config.scheduler.keep_alive, Span::from_secs(300));
    assert_eq!(config.log.format, LogFormat::Json);
    assert_eq!(config.server.listen.port(), 2);
    assert_eq!(config.scheduler.settings().keep_alive, Span::from_secs(300), "and the core hears of it");
}

#[test]
fn what_cannot_be_meant_is_refused_by_name_and_origin() {
    let refused = |list: &[(&str, &str)]| {
        let error = Sources::default().environment(variables(list).into_iter()).load().unwrap_err();
        error.to_string()
    };
    let typo = refused(&[("BERTH_SCHEDULER__KEEPALIVE", "5m")]);
    assert!(typo.contains("BERTH_SCHEDULER__KEEPALIVE") && typo.contains("keepalive"), "{typo}");
    let soon = refused(&[("BERTH_SCHEDULER__KEEP_ALIVE", "soon")]);
    assert!(soon.contains("scheduler.keep_alive") && soon.contains("soon"), "{soon}");
    let crossed = refused(&[("BERTH_SCHEDULER__LOST_AFTER", "1s")]);
    assert!(crossed.contains("lost_after"), "{crossed}");
    let half = refused(&[("BERTH_TLS__CERT", "cert.pem")]);
    assert!(half.contains("cert and key"), "{half}");
    let filter = refused(&[("BERTH_LOG__FILTER", "berth=nonsense")]);
    assert!(filter.contains("log.filter"), "{filter}");
    assert!(Sources::default().file(Path::new("/nowhere.toml")).unwrap_err().to_string().contains("/nowhere.toml"));
}
