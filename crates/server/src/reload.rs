//! What may change while the server runs: limits, the log filter, the rules of the audit log, tokens and certificates.
//!
//! Each of them is read anew by itself. One that is wrong keeps what it was, and the log says why; it does not keep the
//! others from changing. Nothing of it ends the server.

use crate::config::{Config, ConfigError, TlsConfig};
use crate::http::App;
use crate::trust::audit::own_entry;

/// What a reload changes.
#[derive(Clone, Debug)]
pub struct Reloader {
    app: App,
    config: Config,
}

impl Reloader {
    pub(crate) fn new(app: App, config: Config) -> Self {
        Self { app, config }
    }

    /// Reads everything again that may change. `read` is the configuration as it is now.
    pub fn reload(&mut self, read: Result<Config, ConfigError>) {
        let mut kept = 0;
        let mut keep = |what: &str, why: String| {
            kept += 1;
            tracing::error!(what, why, "not reloaded: the server goes on with what it had");
        };
        match read {
            Ok(config) => {
                self.take_over(config, &mut keep);
            }
            Err(error) => keep("configuration", error.to_string()),
        }
        if let Some(tls) = &self.app.tls {
            let TlsConfig { cert, client_ca, .. } = &self.config.tls;
            match tls.reload(&self.config.tls) {
                Ok(()) => tracing::info!(?cert, ?client_ca, "the certificate is reloaded"),
                Err(error) => keep("certificate", error.to_string()),
            }
        }
        match self.app.tokens.reload() {
            Ok(tokens) => tracing::info!(tokens, "the tokens are reloaded"),
            Err(error) => keep("tokens", error.to_string()),
        }
        let target = match kept {
            0 => "everything".to_owned(),
            kept => format!("what could be read; {kept} parts were kept as they were"),
        };
        self.app.audit.record(own_entry("reload", target), false);
    }

    /// Takes over what of the configuration may change, and says what may not.
    fn take_over(&mut self, config: Config, keep: &mut impl FnMut(&str, String)) {
        self.app.limits.replace(config.limits.clone());
        self.app.rates.set(&config.limits);
        self.app.audit.set_config(&config.audit);
        let old = &self.config;
        // A filter that was set through the API stays until the file says something else than before.
        if config.log.filter != old.log.filter
            && let Err(why) = self.app.log_level.set(&config.log.filter)
        {
            keep("log.filter", why);
        }
        let is_encrypted = |config: &Config| config.tls.cert.is_some();
        let fixed = [
            ("server", config.server != old.server),
            ("tls (with or without it)", is_encrypted(&config) != is_encrypted(old)),
            ("tokens", config.tokens != old.tokens),
            ("journal", config.journal != old.journal),
            ("history", config.history != old.history),
            ("log.format", config.log.format != old.log.format),
            ("estimate", config.estimate != old.estimate),
            ("scheduler", config.scheduler != old.scheduler),
        ];
        for (what, _) in fixed.into_iter().filter(|(_, has_changed)| *has_changed) {
            tracing::warn!(what, "changed in the configuration: this takes effect when the server is started again");
        }
        let tls = if is_encrypted(&config) == is_encrypted(old) { config.tls } else { old.tls.clone() };
        let log = crate::config::LogConfig { format: old.log.format, ..config.log };
        self.config = Config { limits: config.limits, audit: config.audit, tls, log, ..self.config.clone() };
        tracing::info!(filter = self.app.log_level.get(), "the limits and the log filter are reloaded");
    }
}
