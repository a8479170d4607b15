//! What the command line and an index file ask for. Pure: no files, no network.

use crate::error::FetchError;

/// One pair of arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Task {
    /// What to fetch.
    pub(crate) source: String,
    /// The folder to put it in.
    pub(crate) folder: String,
    /// Whether the source is an index: a file that lists what to fetch. Its folder is marked.
    pub(crate) indirect: bool,
}

/// Reads pairs `source folder …`; a folder that begins with `mark` makes its source an index.
pub(crate) fn parse(args: &[String], mark: &str) -> Result<Vec<Task>, FetchError> {
    if args.is_empty() || !args.len().is_multiple_of(2) {
        return Err(FetchError::Usage(format!("{} in number", args.len())));
    }
    let task = |pair: &[String]| match pair {
        [source, folder] => {
            let marked = folder.strip_prefix(mark).filter(|_| !mark.is_empty());
            let (indirect, folder) = (marked.is_some(), marked.unwrap_or(folder).to_owned());
            Some(Task {
                source: source.clone(),
                folder,
                indirect,
            })
        }
        _ => None,
    };
    let tasks: Vec<Task> = args.chunks(2).filter_map(task).collect();
    match tasks
        .iter()
        .find(|task| task.source.is_empty() || task.folder.is_empty())
    {
        Some(task) => Err(FetchError::Usage(format!("{:?} and {:?}", task.source, task.folder))),
        None => Ok(tasks),
    }
}

/// An index: the first line is a URL, the others are paths below it. Empty lines and those that begin with `#` say
/// nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Index {
    /// What the paths are below; without a slash at its end.
    pub(crate) base: String,
    /// The paths, each once, in their order.
    pub(crate) paths: Vec<String>,
}

impl Index {
    /// Reads an index; none where it lists nothing.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let base = lines.next()?.trim_end_matches('/').to_owned();
        let mut seen = std::collections::HashSet::new();
        let paths: Vec<String> = lines.filter(|path| seen.insert(*path)).map(str::to_owned).collect();
        (!paths.is_empty()).then_some(Self { base, paths })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(list: &[&str]) -> Vec<String> {
        list.iter().map(|arg| (*arg).to_owned()).collect()
    }

    #[test]
    fn arguments_are_pairs_and_a_mark_makes_an_index() {
        let tasks = parse(
            &args(&["s3://b/m", "/downloads/b", "/data/i.txt", "@/downloads/data"]),
            "@",
        )
        .unwrap();
        let task = |source: &str, folder: &str, indirect| Task {
            source: source.into(),
            folder: folder.into(),
            indirect,
        };
        assert_eq!(
            tasks,
            [
                task("s3://b/m", "/downloads/b", false),
                task("/data/i.txt", "/downloads/data", true)
            ]
        );
    }

    #[test]
    fn other_arguments_are_refused() {
        for list in [
            &[][..],
            &["s3://b/m"],
            &["a", "b", "c"],
            &["", "/downloads"],
            &["s3://b/m", "@"],
        ] {
            let error = parse(&args(list), "@").unwrap_err().to_string();
            assert!(error.contains("pairs of a source and a folder are wanted"), "{error}");
        }
    }

    #[test]
    fn an_index_names_a_base_and_what_is_below_it() {
        let index = Index::parse(
            "# made by the node\n\n s3://b/data/ \nimages/1.png\n#images/2.png\nimages/3.png\nimages/1.png\n",
        );
        let paths = vec!["images/1.png".into(), "images/3.png".into()];
        assert_eq!(
            index,
            Some(Index {
                base: "s3://b/data".into(),
                paths
            })
        );
        assert_eq!(Index::parse("s3://b/data\n# nothing\n"), None);
        assert_eq!(Index::parse(""), None);
    }
}
