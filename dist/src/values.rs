//! Writes the page about the chart's values from its `values.yaml`: a key with a comment above it is a value, and the
//! comment says what it is.

use serde_json::Value;
use thiserror::Error;

/// Why there is no page.
#[derive(Debug, Error)]
pub enum ValuesError {
    /// It is no YAML.
    #[error("values.yaml: {0}")]
    Unparsable(#[from] serde_saphyr::Error),
    /// A value that nothing is said about.
    #[error("values.yaml, line {line}: {path} has no comment above it that says what it is")]
    Unexplained {
        /// The line, from 1.
        line: usize,
        /// The value.
        path: String,
    },
}

const HEAD: &str = "<!-- Generated from charts/skerry/values.yaml: cargo run -p skerry-dist -- values -->
# The chart's values

`helm install … --set KEY=VALUE`, or a file with `--values`. A key that is not in this list is refused, and so is a value of
the wrong kind.

| value | default | what it is |
|---|---|---|
";

/// The page.
pub fn page(values: &str) -> Result<String, ValuesError> {
    let defaults: Value = serde_saphyr::from_str(values)?;
    let mut page = HEAD.to_owned();
    // The keys that lead to the present line, each with its indentation, and whether a comment covers what is below.
    let mut above: Vec<(usize, String, bool)> = vec![];
    let mut comment = String::new();
    for (at, line) in values.lines().enumerate() {
        let text = line.trim();
        let indent = line.len() - line.trim_start().len();
        if let Some(said) = text.strip_prefix('#') {
            comment.extend([" ", said.trim()]);
            continue;
        }
        let said = std::mem::take(&mut comment);
        let said = said.trim();
        let Some((key, value)) = text.split_once(':').filter(|(key, _)| !key.starts_with('-')) else {
            continue;
        };
        above.retain(|(of, ..)| *of < indent);
        let covered = above.iter().any(|(.., covered)| *covered);
        above.push((indent, key.to_owned(), covered || !said.is_empty()));
        if covered {
            continue;
        }
        let keys: Vec<_> = above.iter().map(|(_, key, _)| key.as_str()).collect();
        let path = keys.join(".");
        if !said.is_empty() {
            let default = keys.iter().try_fold(&defaults, |value, key| value.get(key));
            let default = default.map(Value::to_string).unwrap_or_default();
            let said = said.replace('|', "\\|");
            page.extend([format!("| `{path}` | `{default}` | {said} |\n")]);
        } else if !value.is_empty() {
            return Err(ValuesError::Unexplained { line: at + 1, path });
        }
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_comment_explains_what_is_below_it() {
        let page =
            page("# One.\na: 1\nb:\n  # Two,\n  # or | three.\n  c:\n    d: {e: x}\n  # Four.\n  f: [4]\n").unwrap();
        let rows: Vec<_> = page
            .lines()
            .skip_while(|line| !line.starts_with("|---"))
            .skip(1)
            .collect();
        let expected = [
            r"| `a` | `1` | One. |",
            r#"| `b.c` | `{"d":{"e":"x"}}` | Two, or \| three. |"#,
            r"| `b.f` | `[4]` | Four. |",
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn a_value_that_nothing_is_said_about_is_refused() {
        let error = page("# One.\na: 1\nb:\n  c: 2\n").unwrap_err().to_string();
        assert!(error.contains("line 4") && error.contains("b.c"), "{error}");
    }

    #[test]
    fn the_page_is_the_present_charts() {
        let read = |path: &str| fs::read_to_string(crate::root().join(path)).unwrap();
        let written = page(&read("charts/skerry/values.yaml")).unwrap();
        let advice = "run: cargo run -p skerry-dist -- values";
        assert!(
            read("docs/chart-values.md") == written,
            "docs/chart-values.md is not up to date; {advice}"
        );
    }
}
