//! Finds a file of the host from within a container that has the host's root mounted somewhere.
//!
//! A symbolic link on the host names its target by the host's root, not by ours, so links are followed here, one by
//! one: followed by the kernel, an absolute one would lead into the container's own files.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs, io,
    path::{Component, Path, PathBuf},
};

/// As many as Linux follows.
const MAX_LINKS: usize = 40;

/// Where `path` of the host is from here, all links followed. A last part that does not exist is no error.
pub(super) fn resolve(rootfs: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut todo: VecDeque<OsString> = parts(path);
    let mut done = Vec::<OsString>::new();
    let mut links = 0;
    while let Some(part) = todo.pop_front() {
        if part == ".." {
            done.pop();
            continue;
        }
        let here = place(rootfs, &done, &part);
        match fs::read_link(&here) {
            Ok(target) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(io::Error::other("too many levels of symbolic links"));
                }
                if target.is_absolute() {
                    done.clear();
                }
                for part in parts(&target).into_iter().rev() {
                    todo.push_front(part);
                }
            }
            // Not a link.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => done.push(part),
            Err(error) if error.kind() == io::ErrorKind::NotFound && todo.is_empty() => done.push(part),
            Err(error) => return Err(error),
        }
    }
    Ok(done.into_iter().fold(rootfs.to_owned(), |path, part| path.join(part)))
}

fn place(rootfs: &Path, done: &[OsString], part: &OsString) -> PathBuf {
    let mut path = rootfs.to_owned();
    path.extend(done);
    path.push(part);
    path
}

/// The names in a path, with `..` among them: what that means depends on the links before it.
fn parts(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(part) => Some(part.to_owned()),
            Component::ParentDir => Some(OsString::from("..")),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    fn host() -> TempDir {
        let root = TempDir::new().unwrap();
        fs::create_dir_all(root.path().join("mnt/disk/sets")).unwrap();
        fs::write(root.path().join("mnt/disk/sets/a.csv"), "").unwrap();
        root
    }

    #[test]
    fn links_lead_where_they_lead_on_the_host() {
        let root = host();
        symlink("/mnt/disk", root.path().join("data")).unwrap();
        symlink("../mnt/./disk/sets", root.path().join("mnt/sets")).unwrap();
        let expected = root.path().join("mnt/disk/sets/a.csv");
        for path in [
            "/mnt/disk/sets/a.csv",
            "/data/sets/a.csv",
            "/mnt/sets/a.csv",
            "/data/../disk/sets/a.csv",
        ] {
            assert_eq!(resolve(root.path(), Path::new(path)).unwrap(), expected, "{path}");
        }
    }

    #[test]
    fn nothing_leads_out_of_the_host() {
        let root = host();
        symlink("../../../../etc", root.path().join("out")).unwrap();
        for path in ["/../../mnt", "/out/../mnt"] {
            assert_eq!(
                resolve(root.path(), Path::new(path)).ok(),
                Some(root.path().join("mnt")).filter(|_| path != "/out/../mnt")
            );
        }
    }

    #[test]
    fn a_file_that_is_not_there_yet_has_a_place() {
        let root = host();
        let path = resolve(root.path(), Path::new("/mnt/disk/sets/new.csv")).unwrap();
        assert_eq!(path, root.path().join("mnt/disk/sets/new.csv"));
        assert!(resolve(root.path(), Path::new("/mnt/nowhere/new.csv")).is_err());
    }

    #[test]
    fn a_ring_of_links_ends() {
        let root = host();
        symlink("/b", root.path().join("a")).unwrap();
        symlink("/a", root.path().join("b")).unwrap();
        assert!(resolve(root.path(), Path::new("/a")).is_err());
    }
}
