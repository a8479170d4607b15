//! Archives are unpacked beside themselves, and then are no more.
//!
//! An entry that would be written, or point, outside the folder spoils the whole archive: nothing of it appears. The
//! entries of a good one are moved into place only when all of them are there.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tar::EntryType;

use crate::error::FetchError;
use crate::source::below;

/// Kinds of archives, by the ends of their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Files one after the other.
    Tar,
    /// The same, compressed as a whole.
    TarGz,
    /// Files with a list at the end, each compressed for itself.
    Zip,
}

impl Kind {
    /// The kind of archive that a file of this name is, if it is one.
    pub fn of(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let ends = |end: &str| name.len() > end.len() && name.ends_with(end);
        match () {
            () if ends(".tar.gz") || ends(".tgz") => Some(Self::TarGz),
            () if ends(".tar") => Some(Self::Tar),
            () if ends(".zip") => Some(Self::Zip),
            () => None,
        }
    }
}

/// Why an archive is refused.
#[derive(Debug)]
enum Refusal {
    Entry { path: PathBuf, problem: &'static str },
    Broken(String),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl From<zip::result::ZipError> for Refusal {
    fn from(error: zip::result::ZipError) -> Self {
        Self::Broken(error.to_string())
    }
}

/// Unpacks `archive` into `folder` and removes it. Blocks.
pub fn unpack(url: &str, kind: Kind, archive: &Path, folder: &Path) -> Result<(), FetchError> {
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    let stage = folder.join(format!(".{name}.unpacked"));
    remove_all(&stage);
    fs::create_dir_all(&stage).map_err(FetchError::write(url, &stage))?;
    let unpacked = match kind {
        Kind::Tar => File::open(archive)
            .map_err(Refusal::from)
            .and_then(|file| unpack_tar(file, &stage)),
        Kind::TarGz => {
            let file = File::open(archive).map_err(Refusal::from);
            file.and_then(|file| unpack_tar(flate2::read::MultiGzDecoder::new(file), &stage))
        }
        Kind::Zip => unpack_zip(archive, &stage),
    };
    if let Err(refusal) = unpacked {
        remove_all(&stage);
        let problem = match refusal {
            Refusal::Entry { path, problem } => format!("{} {problem}", path.display()),
            Refusal::Broken(problem) => problem,
        };
        return Err(FetchError::Archive {
            url: url.to_owned(),
            problem,
        });
    }
    move_into(&stage, folder).map_err(FetchError::write(url, folder))?;
    remove_all(&stage);
    fs::remove_file(archive).map_err(FetchError::write(url, archive))?;
    tracing::info!("{url}: unpacked into {}", folder.display());
    Ok(())
}

fn remove_all(path: &Path) {
    // Nothing there is as good as removed; if it cannot be removed, what comes next will say so.
    let _ = fs::remove_dir_all(path);
}

const OUTSIDE: &str = "would be outside its folder";

fn unpack_tar(reader: impl io::Read, stage: &Path) -> Result<(), Refusal> {
    let mut archive = tar::Archive::new(reader);
    archive.set_preserve_mtime(false);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let refused = |problem| {
            Err(Refusal::Entry {
                path: path.clone(),
                problem,
            })
        };
        match entry.header().entry_type() {
            // An archive may begin with the folder itself.
            EntryType::Directory if path.components().all(|part| part == std::path::Component::CurDir) => continue,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse | EntryType::Directory => {}
            EntryType::Symlink | EntryType::Link => {
                let target = entry.link_name()?.unwrap_or_default();
                if below(stage, &target).is_none() {
                    return refused("is a link, and points outside its folder");
                }
            }
            EntryType::XGlobalHeader => continue,
            _ => return refused("is neither a file nor a folder nor a link"),
        }
        if below(stage, &path).is_none() || !entry.unpack_in(stage)? {
            return refused(OUTSIDE);
        }
    }
    Ok(())
}

fn unpack_zip(archive: &Path, stage: &Path) -> Result<(), Refusal> {
    let mut archive = zip::ZipArchive::new(File::open(archive)?)?;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index)?;
        let path = PathBuf::from(entry.name());
        let Some(target) = below(stage, &path) else {
            return Err(Refusal::Entry { path, problem: OUTSIDE });
        };
        if entry.is_symlink() {
            return Err(Refusal::Entry {
                path,
                problem: "is a link",
            });
        }
        if entry.is_dir() {
            fs::create_dir_all(&target)?;
            continue;
        }
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        io::copy(&mut entry, &mut File::create(&target)?)?;
    }
    Ok(())
}

/// Moves all that is in `from` into `to`, where folders become one and files replace those of their names.
fn move_into(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        // Not followed: a link to a folder is replaced, never written through.
        let existing = fs::symlink_metadata(&target).ok();
        match existing {
            Some(existing) if existing.is_dir() && entry.file_type()?.is_dir() => {
                move_into(&entry.path(), &target)?;
                continue;
            }
            Some(existing) if existing.is_dir() => fs::remove_dir_all(&target)?,
            Some(_) if entry.file_type()?.is_dir() => fs::remove_file(&target)?,
            _ => {}
        }
        fs::rename(entry.path(), &target)?;
    }
    Ok(())
}
