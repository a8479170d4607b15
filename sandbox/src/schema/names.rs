//! What names, labels and keys may look like, in the API server's words.
//!
//! Each function answers what is wrong, one sentence a fault; nothing is wrong with an empty answer.

use std::sync::LazyLock;

use regex::Regex;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

/// A shape and how it is told.
struct Shape {
    source: &'static str,
    regex: LazyLock<Option<Regex>>,
    told: &'static str,
    examples: &'static [&'static str],
}

macro_rules! shape {
    ($name:ident, $source:ident, $told:literal, $($example:literal),+) => {
        static $name: Shape = Shape {
            source: $source,
            regex: LazyLock::new(|| Regex::new(&format!("^{}$", $source)).ok()),
            told: $told,
            examples: &[$($example),+],
        };
    };
}

shape!(
    IS_LABEL,
    LABEL,
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with \
     an alphanumeric character",
    "my-name",
    "123-abc"
);
shape!(
    IS_SUBDOMAIN,
    SUBDOMAIN,
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and \
     end with an alphanumeric character",
    "example.com"
);
shape!(
    IS_LABEL_1035,
    LABEL_1035,
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, \
     and end with an alphanumeric character",
    "my-name",
    "abc-123"
);
shape!(
    IS_QUALIFIED,
    QUALIFIED,
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    "MyName",
    "my.name",
    "123-abc"
);
shape!(
    IS_VALUE,
    VALUE,
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and \
     end with an alphanumeric character",
    "MyValue",
    "my_value",
    "12345"
);

impl Shape {
    fn fits(&self, text: &str) -> bool {
        self.regex.as_ref().is_none_or(|regex| regex.is_match(text))
    }

    fn told(&self) -> String {
        let examples: Vec<_> = self.examples.iter().map(|e| format!("'{e}', ")).collect();
        format!(
            "{} (e.g. {}regex used for validation is '{}')",
            self.told,
            examples.join(" or "),
            self.source
        )
    }

    fn check(&self, text: &str, longest: usize) -> Vec<String> {
        let mut wrong = too_long(text, longest);
        if !self.fits(text) {
            wrong.push(self.told());
        }
        wrong
    }
}

fn too_long(text: &str, longest: usize) -> Vec<String> {
    let long = text.len() > longest;
    long.then(|| format!("must be no more than {longest} characters"))
        .into_iter()
        .collect()
}

/// What the names of a kind's objects may look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS subdomain: most kinds.
    Subdomain,
    /// A DNS label: namespaces.
    Label,
    /// A DNS label that starts with a letter: services.
    Label1035,
    /// Anything that can stand in a URL's path: roles and their bindings.
    PathSegment,
}

impl NameRule {
    /// The rule for a kind.
    pub fn of(group: &str, kind: &str) -> Self {
        match (group, kind) {
            ("", "Namespace") => Self::Label,
            ("", "Service") => Self::Label1035,
            ("rbac.authorization.k8s.io", _) => Self::PathSegment,
            _ => Self::Subdomain,
        }
    }

    /// What is wrong with a name, or with the beginning of one that is to be generated.
    pub fn check(self, name: &str, is_prefix: bool) -> Vec<String> {
        let masked = if is_prefix {
            mask_trailing_dash(name)
        } else {
            name.to_owned()
        };
        match self {
            Self::Subdomain => subdomain(&masked),
            Self::Label => label(&masked),
            Self::Label1035 => label_1035(&masked),
            Self::PathSegment if !is_prefix && (name == "." || name == "..") => vec![format!("may not be '{name}'")],
            Self::PathSegment => {
                let there = ["/", "%"].into_iter().filter(|c| name.contains(c));
                there.map(|c| format!("may not contain '{c}'")).collect()
            }
        }
    }
}

/// What is generated will not end where the prefix does.
fn mask_trailing_dash(name: &str) -> String {
    match name.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let kept: String = rest.chars().take(rest.chars().count() - 1).collect();
            format!("{kept}a")
        }
        _ => name.to_owned(),
    }
}

/// A DNS subdomain, such as `a.example.com`.
pub(crate) fn subdomain(text: &str) -> Vec<String> {
    IS_SUBDOMAIN.check(text, 253)
}

/// A DNS label (RFC 1123), such as `my-name`.
pub(crate) fn label(text: &str) -> Vec<String> {
    let mut wrong = too_long(text, 63);
    if !IS_LABEL.fits(text) {
        wrong.push(if IS_SUBDOMAIN.fits(text) {
            "must not contain dots".into()
        } else {
            IS_LABEL.told()
        });
    }
    wrong
}

/// A DNS label that starts with a letter (RFC 1035).
pub(crate) fn label_1035(text: &str) -> Vec<String> {
    IS_LABEL_1035.check(text, 63)
}

/// The value of a label.
pub(crate) fn label_value(text: &str) -> Vec<String> {
    IS_VALUE.check(text, 63)
}

/// A key of labels or annotations, a finalizer: a name with an optional DNS subdomain and `/` before it.
pub(crate) fn qualified(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let name = match *text.split('/').collect::<Vec<_>>() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".into());
            } else {
                wrong.extend(subdomain(prefix).into_iter().map(|why| format!("prefix part {why}")));
            }
            name
        }
        _ => {
            return vec![format!(
                "a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                IS_QUALIFIED.told()
            )];
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".into());
    }
    wrong.extend(
        IS_QUALIFIED
            .check(name, 63)
            .into_iter()
            .map(|why| format!("name part {why}")),
    );
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        for (rule, good, bad) in [
            (NameRule::Subdomain, "a.b-c", "A"),
            (NameRule::Label, "a-b", "a.b"),
            (NameRule::Label1035, "a1", "1a"),
            (NameRule::PathSegment, "system:admin", "a/b"),
        ] {
            assert!(rule.check(good, false).is_empty(), "{rule:?} {good}");
            assert!(!rule.check(bad, false).is_empty(), "{rule:?} {bad}");
        }
        assert!(NameRule::Subdomain.check("job-", true).is_empty());
        assert_eq!(label("a.b"), ["must not contain dots"]);
        assert_eq!(subdomain(&"a".repeat(254)), ["must be no more than 253 characters"]);
    }

    #[test]
    fn keys_may_have_a_prefix() {
        assert!(qualified("sedna.io/name").is_empty());
        assert!(qualified("Name_1").is_empty());
        assert_eq!(qualified("/a"), ["prefix part must be non-empty"]);
        assert_eq!(qualified("a/").len(), 2);
        assert!(qualified("a/b/c")[0].starts_with("a qualified name must consist of"));
    }
}
