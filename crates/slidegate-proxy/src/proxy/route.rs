//! Routes from path prefixes to upstream servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::upstream::Upstream;
use crate::settings::ProxyConfig;

/// All routes, the longest prefix first.
#[derive(Debug)]
pub(crate) struct Routes(Vec<Route>);

/// The servers for the paths under one prefix.
#[derive(Debug)]
pub(crate) struct Route {
    prefix: String,
    servers: Vec<Arc<Upstream>>,
    turn: AtomicUsize,
}

impl Routes {
    /// Servers that are also in `before` keep their connections and health.
    pub(crate) fn new(config: &ProxyConfig, before: Option<&Self>) -> Self {
        let (workers, max_idle) = (config.workers, config.bounds.idle_upstream);
        let known = |uri: &http::Uri, http2| {
            let mut servers = before?.0.iter().flat_map(|route| &route.servers);
            servers.find(|server| server.is(uri, http2)).cloned()
        };
        let mut routes: Vec<Route> = config
            .routes
            .iter()
            .map(|route| {
                let server = |uri| {
                    let new = || Arc::new(Upstream::new(uri, route.http2, workers, max_idle));
                    known(uri, route.http2).unwrap_or_else(new)
                };
                let prefix = route.prefix.trim_end_matches('/').to_owned();
                let servers = route.servers.iter().map(server).collect();
                Route { prefix, servers, turn: AtomicUsize::new(0) }
            })
            .collect();
        routes.sort_by_key(|route| std::cmp::Reverse(route.prefix.len()));
        Self(routes)
    }

    /// The route with the longest prefix of a path in its normal form, by whole segments.
    pub(crate) fn find(&self, path: &str) -> Option<&Route> {
        // `OPTIONS *` asks about the server as a whole.
        let path = if path == "*" { "/" } else { path };
        self.0.iter().find(|route| {
            // The usual prefix. `memcmp` of an empty text takes 80 ns: the processor reads ahead at its
            // address, which is not mapped.
            let rest = match route.prefix.is_empty() {
                true => Some(path),
                false => path.strip_prefix(route.prefix.as_str()),
            };
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

impl Route {
    /// The beginning of its paths.
    pub(crate) fn prefix(&self) -> &str {
        if self.prefix.is_empty() { "/" } else { &self.prefix }
    }

    /// The servers in the order in which to try them: in turn, the healthy ones first.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        let turn = match self.servers.len() {
            1 => 0,
            several => self.turn.fetch_add(1, Ordering::Relaxed) % several,
        };
        let in_turn = move || self.servers[turn..].iter().chain(&self.servers[..turn]);
        let healthy = in_turn().filter(|server| server.is_healthy());
        // A server that may be down is better than none.
        healthy.chain(in_turn().filter(|server| !server.is_healthy()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Bounds, HeaderRules, HostRule, RouteConfig, Timeouts};

    fn config(routes: Vec<RouteConfig>) -> ProxyConfig {
        ProxyConfig {
            routes,
            host: HostRule::Keep,
            headers: HeaderRules::default(),
            forwarding: Vec::new(),
            upgrades: Vec::new(),
            workers: 1,
            timeouts: Timeouts::default(),
            bounds: Bounds::default(),
        }
    }

    fn routes(prefixes: &[&str]) -> Routes {
        let routes = prefixes
            .iter()
            .map(|prefix| RouteConfig {
                prefix: (*prefix).to_owned(),
                servers: vec![
                    http::Uri::from_static("http://a"),
                    http::Uri::from_static("http://b"),
                ],
                http2: false,
            })
            .collect();
        Routes::new(&config(routes), None)
    }

    #[test]
    fn longest_prefix_wins_by_whole_segments() {
        let routes = routes(&["/", "/api", "/api/v2/"]);
        let found = |path| routes.find(path).map(|route| route.prefix.as_str());
        assert_eq!(found("/"), Some(""));
        assert_eq!(found("/apiary"), Some(""));
        assert_eq!(found("/api"), Some("/api"));
        assert_eq!(found("/api/v1"), Some("/api"));
        assert_eq!(found("/api/v2"), Some("/api/v2"));
        assert_eq!(found("/api/v2/x"), Some("/api/v2"));
        assert_eq!(found("*"), Some(""));
    }

    #[test]
    fn servers_take_turns_and_the_sick_come_last() {
        let routes = routes(&["/"]);
        let route = routes.find("/").unwrap();
        let first = || route.servers().next().unwrap().authority.to_string();
        assert_eq!([first(), first(), first()], ["a", "b", "a"]);
        let a = route.servers.iter().find(|server| server.authority == "a").unwrap();
        (0..3).for_each(|_| a.failed("refused"));
        assert_eq!([first(), first()], ["b", "b"]);
        assert_eq!(route.servers().count(), 2);
    }

    #[test]
    fn a_server_that_stays_is_the_same() {
        let before = routes(&["/"]);
        let routes = vec![RouteConfig {
            prefix: "/x".to_owned(),
            servers: vec![http::Uri::from_static("http://b"), http::Uri::from_static("http://c")],
            http2: false,
        }];
        let after = Routes::new(&config(routes), Some(&before));
        assert!(Arc::ptr_eq(&after.0[0].servers[0], &before.0[0].servers[1]));
    }
}
