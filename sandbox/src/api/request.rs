//! What a request asks: verb, resource, object. Read from method, path and query, before anything is looked up.

use std::fmt;

use http::Method;

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

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// To a resource.
    Resource(Box<RequestInfo>),
    /// To an object that is to be created where it is to be read.
    NotAllowed,
    /// Anywhere else: discovery, health, and what does not exist.
    Other,
}

/// Reads method and path. `watching` is what the query says about it.
pub(super) fn route(method: &Method, path: &str, watching: bool) -> Route {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return Route::Other,
    };
    // An old way to say that something is to be watched.
    let (watching, rest) = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
        _ => (watching, rest),
    };
    let (namespace, rest) = match rest {
        // `namespaces/x`, `namespaces/x/status` and `namespaces/x/finalize` are about the namespace itself.
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => ("", rest),
        ["namespaces", namespace, rest @ ..] => (*namespace, rest),
        _ => ("", rest),
    };
    let (resource, name, subresource) = match rest {
        [resource] => (*resource, "", ""),
        [resource, name] => (*resource, *name, ""),
        [resource, name, subresource] => (*resource, *name, *subresource),
        _ => return Route::Other,
    };
    if method == Method::POST && !name.is_empty() && subresource.is_empty() {
        return Route::NotAllowed;
    }
    let verb = match (method, name.is_empty()) {
        (&Method::HEAD, _) | (&Method::PUT | &Method::PATCH, true) => return Route::NotAllowed,
        (&Method::GET, true) if watching => Verb::Watch,
        (&Method::GET, true) => Verb::List,
        (&Method::GET, false) => Verb::Get,
        (&Method::POST, _) => Verb::Create,
        (&Method::PUT, _) => Verb::Update,
        (&Method::PATCH, _) => Verb::Patch,
        (&Method::DELETE, true) => Verb::DeleteCollection,
        (&Method::DELETE, false) => Verb::Delete,
        _ => return Route::Other,
    };
    Route::Resource(Box::new(RequestInfo {
        user: String::new(),
        verb,
        apply: false,
        group: group.to_owned(),
        version: version.to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        dry_run: false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &Method, path: &str) -> String {
        match route(method, path, false) {
            Route::Other => "other".into(),
            Route::NotAllowed => "not allowed".into(),
            Route::Resource(r) => format!(
                "{} {}/{} {}/{} {}/{}",
                r.verb, r.group, r.version, r.resource, r.subresource, r.namespace, r.name
            ),
        }
    }

    #[test]
    fn paths() {
        for (method, path, wanted) in [
            (Method::GET, "/api/v1/pods", "list /v1 pods/ /"),
            (Method::GET, "/api/v1/namespaces", "list /v1 namespaces/ /"),
            (Method::GET, "/api/v1/namespaces/a", "get /v1 namespaces/ /a"),
            (
                Method::PUT,
                "/api/v1/namespaces/a/finalize",
                "update /v1 namespaces/finalize /a",
            ),
            (Method::POST, "/api/v1/namespaces/a/pods", "create /v1 pods/ a/"),
            (
                Method::PATCH,
                "/apis/apps/v1/namespaces/a/deployments/d/scale",
                "patch apps/v1 deployments/scale a/d",
            ),
            (
                Method::DELETE,
                "/apis/apps/v1/namespaces/a/deployments",
                "deletecollection apps/v1 deployments/ a/",
            ),
            (Method::GET, "/apis/apps/v1", "other"),
            (Method::GET, "/api", "other"),
            (Method::GET, "/version", "other"),
            (Method::POST, "/api/v1/nodes/n", "not allowed"),
            (Method::PUT, "/api/v1/nodes", "not allowed"),
            (Method::HEAD, "/api/v1/nodes/n", "not allowed"),
            (Method::GET, "/api/v1/watch/namespaces/a/pods", "watch /v1 pods/ a/"),
        ] {
            assert_eq!(read(&method, path), wanted, "{path}");
        }
    }
}
