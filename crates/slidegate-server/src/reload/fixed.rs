//! What a reload leaves as it is.

use crate::config::{
    AdminConfig, AuditConfig, Config, DecisionsConfig, GatewayConfig, LogConfig, RouteConfig,
    StoreConfig,
};

/// The part of a configuration that is in force until the process ends: endpoints, store, log and
/// audit trail.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fixed {
    gateway: Option<GatewayConfig>,
    decisions: Option<DecisionsConfig>,
    admin: AdminConfig,
    store: StoreConfig,
    log: LogConfig,
    audit: Option<AuditConfig>,
}

impl Fixed {
    pub(crate) fn of(config: &Config) -> Self {
        // Routes can change, so none are as good as any.
        let routes: Vec<RouteConfig> = Vec::new();
        let gateway = config.gateway.clone().map(|gateway| GatewayConfig { routes, ..gateway });
        Self {
            gateway,
            decisions: config.decisions.clone(),
            admin: config.admin.clone(),
            store: config.store.clone(),
            log: config.log.clone(),
            audit: config.audit.clone(),
        }
    }

    /// The parts that another configuration has otherwise, and that need a restart.
    pub(crate) fn differs_from(&self, other: &Self) -> Vec<&'static str> {
        [
            ("gateway", self.gateway == other.gateway),
            ("decisions", self.decisions == other.decisions),
            ("admin", self.admin == other.admin),
            ("store", self.store == other.store),
            ("log", self.log == other.log),
            ("audit", self.audit == other.audit),
        ]
        .into_iter()
        .filter_map(|(part, same)| (!same).then_some(part))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, File, Sources};

    fn fixed(text: &str) -> Fixed {
        let file = File::Text { name: "test.toml".to_owned(), text: text.to_owned() };
        let sources = Sources { file: Some(file), ..Sources::default() };
        Fixed::of(&config::load(&sources).unwrap().config)
    }

    #[test]
    fn other_routes_need_no_restart_and_other_addresses_do() {
        let before = fixed("[gateway]\nupstream = 'http://a'");
        assert_eq!(before.differs_from(&fixed("[gateway]\nupstream = 'http://b'")), [""; 0]);
        let elsewhere = "[gateway]\nupstream = 'http://a'\nlisten = '127.0.0.1:81'\n[admin]\nlisten = '127.0.0.1:82'";
        assert_eq!(before.differs_from(&fixed(elsewhere)), ["gateway", "admin"]);
    }
}
