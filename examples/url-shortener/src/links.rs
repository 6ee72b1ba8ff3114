//! The links that were made, in memory.

use std::sync::{Arc, RwLock};

/// How many links there can be: enough to try it out.
const MAX_LINKS: usize = 100_000;

/// The links that were made, shared by all requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Links {
    urls: Arc<RwLock<Vec<String>>>,
}

impl Links {
    /// Keeps a URL and tells its slug; `None` if there is no room for it.
    pub(crate) fn shorten(&self, url: String) -> Option<String> {
        let mut urls = self.urls.write().expect("no panics while locked");
        if urls.len() == MAX_LINKS {
            return None;
        }
        urls.push(url);
        Some(format!("{:x}", urls.len()))
    }

    /// The URL behind a slug.
    pub(crate) fn url(&self, slug: &str) -> Option<String> {
        let number = usize::from_str_radix(slug, 16).ok()?;
        let urls = self.urls.read().expect("no panics while locked");
        urls.get(number.checked_sub(1)?).cloned()
    }
}
