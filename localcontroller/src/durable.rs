//! Puts a file in the place of another, such that whatever happens meanwhile one of the two is there, whole.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// All that we keep is for us alone.
const FILE_MODE: u32 = 0o600;

/// Writes a file beside, makes it durable, and puts it in the place of the one at `path`.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = PathBuf::from(format!("{}.new", path.display()));
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE_MODE)
        .open(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    settle(path)
}

/// Makes durable which file is at `path`.
pub(crate) fn settle(path: &Path) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}
