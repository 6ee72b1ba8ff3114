//! Lists of accounts that were made a moment ago, for pages that ask again and again: each takes up
//! to 200 calls to the store.

use std::time::Duration;

use bytes::Bytes;
use slidegate::Timestamp;
use tokio::sync::Mutex;

use crate::api::AccountSort;

/// No caller is content with anything older.
pub(super) const MAX_AGE: Duration = Duration::from_secs(10);

/// Lists as JSON, at most one for each order and length. Those who ask while one is made wait for it.
#[derive(Debug, Default)]
pub(crate) struct RecentLists(Mutex<Vec<RecentList>>);

#[derive(Debug)]
struct RecentList {
    sort: AccountSort,
    limit: usize,
    made: Timestamp,
    json: Bytes,
}

impl RecentLists {
    /// A list that is not older than that, or a new one.
    pub(super) async fn get(
        &self,
        (sort, limit): (AccountSort, usize),
        max_age: Duration,
        now: impl Fn() -> Timestamp,
        make: impl AsyncFnOnce() -> Bytes,
    ) -> Bytes {
        let mut lists = self.0.lock().await;
        let now = now();
        lists.retain(|list| now.saturating_since(list.made) < MAX_AGE);
        let same = lists.iter().position(|list| (list.sort, list.limit) == (sort, limit));
        match same.map(|index| &lists[index]) {
            Some(list) if now.saturating_since(list.made) <= max_age => list.json.clone(),
            _ => {
                let json = make().await;
                same.map(|index| lists.swap_remove(index));
                lists.push(RecentList { sort, limit, made: now, json: json.clone() });
                json
            }
        }
    }
}
