//! The path to a field, as a list on the stack: it costs nothing until a fault has to name it.

use std::fmt;

/// A path from the object's root.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path<'a> {
    /// The object itself.
    Root,
    /// A field: `parent.name`.
    Field(&'a Path<'a>, &'a str),
    /// An element: `parent[0]`.
    Index(&'a Path<'a>, usize),
    /// An entry of a map: `parent[key]`.
    Key(&'a Path<'a>, &'a str),
}

impl<'a> Path<'a> {
    pub(crate) fn field(&'a self, name: &'a str) -> Self {
        Self::Field(self, name)
    }

    pub(crate) fn index(&'a self, index: usize) -> Self {
        Self::Index(self, index)
    }

    pub(crate) fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Path::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
            Self::Key(parent, key) => write!(f, "{parent}[{key}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_as_the_api_server_writes_it() {
        let spec = Path::Root.field("spec");
        let list = spec.field("env");
        let third = list.index(2);
        assert_eq!(third.field("name").to_string(), "spec.env[2].name");
        assert_eq!(spec.key("a/b").to_string(), "spec[a/b]");
    }
}
