//! Which paths a policy is about.

use matchit::Router;

/// A set of path patterns such as `/users/{id}` and `/static/{*rest}`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Paths(Router<()>);

impl Paths {
    pub(crate) fn insert(&mut self, pattern: &str) -> Result<(), String> {
        if !pattern.starts_with('/') {
            return Err("expected a path that starts with /, such as /users/{id}".to_owned());
        }
        self.0.insert(pattern, ()).map_err(|error| {
            format!(
                "{error}; expected a pattern such as /login, /users/{{id}} or /static/{{*rest}}"
            )
        })
    }

    pub(crate) fn contains(&self, path: &str) -> bool {
        self.0.at(path).is_ok()
    }
}
