//! The example of the agent's configuration is one.

use berth_runner::agent::AgentConfig;

#[test]
fn the_example_is_read_and_says_the_defaults() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/runner.toml");
    let config: AgentConfig = toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let (settings, runtimes) = config.check().unwrap();
    let defaults = AgentConfig::default();
    let (example, default) = (format!("{:?}", config.agent), format!("{:?}", defaults.agent));
    assert_eq!(example.replace("Some(\"gpu-box-1\")", "None"), default);
    assert_eq!(config.logs, defaults.logs);
    assert_eq!(settings.id.as_str(), "gpu-box-1");
    for name in ["whisper", "vllm", "ollama", "llama-server"] {
        assert!(runtimes.get(&name.parse().unwrap()).is_some(), "{name}");
    }
}

#[test]
fn a_misspelt_name_is_refused() {
    for bad in ["[agent]\nserver_url = \"x\"\n", "[inventory]\nsimulate = []\n", "[runtime.x]\ncomand = []\n"] {
        assert!(toml::from_str::<AgentConfig>(bad).is_err(), "{bad}");
    }
}
