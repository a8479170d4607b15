//! Regular expressions of schemas, each compiled once: a pod template alone asks for quantities in dozens of places.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use regex::Regex;

/// A regular expression with its source, which messages show.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    pub(crate) source: String,
    /// Why it cannot be compiled, if it cannot.
    pub(crate) regex: Result<Arc<Regex>, String>,
}

static COMPILED: LazyLock<Mutex<HashMap<String, Pattern>>> = LazyLock::new(Mutex::default);

impl Pattern {
    pub(crate) fn new(source: &str) -> Self {
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pattern) = compiled.get(source) {
            return pattern.clone();
        }
        let regex = Regex::new(source).map(Arc::new).map_err(|error| error.to_string());
        let pattern = Self {
            source: source.to_owned(),
            regex,
        };
        compiled.insert(source.to_owned(), pattern.clone());
        pattern
    }
}
