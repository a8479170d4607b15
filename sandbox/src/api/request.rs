//! What a request asks: verb, resource, object, query. Read from the path and the query, before anything is looked up.

use std::fmt;

/// What is to be done, in the words of Kubernetes' authorisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// One object.
    Get,
    /// A collection.
    List,
    /// Changes of a collection.
    Watch,
    /// `POST`.
    Create,
    /// `PUT`.
    Update,
    /// `PATCH`, server-side apply included.
    Patch,
    /// One object.
    Delete,
    /// A collection.
    DeleteCollection,
}

impl Verb {
    /// True if the request changes something unless it fails.
    pub fn is_mutating(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }

    /// Kubernetes' word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One request for a resource, as the log keeps it and as faults match it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// Who asks: the name given to [`super::ApiServer::client_as`], or the bearer token over HTTP.
    pub user: String,
    /// What is asked.
    pub verb: Verb,
    /// True for a server-side apply (its verb is [`Verb::Patch`]).
    pub apply: bool,
    /// API group; empty for the core group.
    pub group: String,
    /// API version, such as `v1`.
    pub version: String,
    /// Plural name, such as `deployments`.
    pub resource: String,
    /// Such as `status` or `scale`; empty for the main endpoint.
    pub subresource: String,
    /// Empty for cluster-scoped resources and for requests over all namespaces.
    pub namespace: String,
    /// Empty for collections, and for a create (the name is in the body).
    pub name: String,
    /// True with `dryRun=All`: nothing is stored.
    pub dry_run: bool,
}
