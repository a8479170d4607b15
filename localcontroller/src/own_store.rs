//! Gives the store to the user that the local controller runs as: the kubelet makes a host's directory for root alone.
//!
//! Needs no more than the capability to change owners, and touches only the store's directory and its own files: what
//! others keep beside them stays theirs.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, chown},
    path::Path,
};

use anyhow::Context as _;

use crate::{identity, store};

/// Gives the store and the identity below `rootfs` to `user`, and to the group of the same number. The store's directory is
/// made where it is missing.
pub fn own_store(rootfs: &Path, user: u32) -> anyhow::Result<()> {
    let database = rootfs.join(store::PATH);
    let (Some(directory), Some(name)) = (database.parent(), database.file_name().and_then(|name| name.to_str())) else {
        anyhow::bail!("{} is no file in a directory", database.display());
    };
    fs::create_dir_all(directory).with_context(|| format!("{} cannot be made", directory.display()))?;
    open_up(directory)?;
    // The database, its journals, and what was moved aside.
    give_files(directory, user, |file| file.starts_with(name))?;
    let identity = rootfs.join(identity::PATH);
    if identity.is_dir() {
        open_up(&identity)?;
        give_files(&identity, user, |_| true)?;
        give(&identity, user)?;
    }
    give(directory, user)
}

/// Without the right to read what belongs to others, a directory can be listed by its owner only.
fn open_up(directory: &Path) -> anyhow::Result<()> {
    let me = fs::metadata("/proc/self").context("/proc cannot be read")?.uid();
    chown(directory, Some(me), None).with_context(|| format!("{} cannot be opened up", directory.display()))
}

fn give_files(directory: &Path, user: u32, is_ours: impl Fn(&str) -> bool) -> anyhow::Result<()> {
    let listed = fs::read_dir(directory).with_context(|| format!("{} cannot be listed", directory.display()))?;
    for entry in listed {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(&is_ours) && entry.file_type()?.is_file() {
            give(&entry.path(), user)?;
        }
    }
    Ok(())
}

fn give(path: &Path, user: u32) -> anyhow::Result<()> {
    chown(path, Some(user), Some(user)).with_context(|| format!("{} cannot be given to user {user}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_and_the_stores_files_change_hands_and_nothing_else() {
        let rootfs = tempfile::tempdir().unwrap();
        let me = fs::metadata(rootfs.path()).unwrap();
        if me.uid() != me.gid() {
            eprintln!("skipped: user and group have different numbers, and only root may give a file away");
            return;
        }
        // Only root can see a difference; for others the owner stays.
        let user = if me.uid() == 0 { 65532 } else { me.uid() };
        let directory = rootfs.path().join("var/lib/skerry");
        fs::create_dir_all(directory.join("examples")).unwrap();
        fs::create_dir_all(directory.join("identity")).unwrap();
        for file in [
            "localcontroller.db",
            "localcontroller.db-wal",
            "localcontroller.db.mark",
            "identity/identity.json",
            "other",
        ] {
            fs::write(directory.join(file), "").unwrap();
        }
        for _again in 0..2 {
            own_store(rootfs.path(), user).unwrap();
            let owner = |name: &str| fs::metadata(directory.join(name)).unwrap().uid();
            assert_eq!(
                [
                    "",
                    "localcontroller.db",
                    "localcontroller.db-wal",
                    "localcontroller.db.mark",
                    "identity",
                    "identity/identity.json"
                ]
                .map(owner),
                [user; 6]
            );
            assert_eq!(["examples", "other"].map(owner), [me.uid(); 2]);
        }
    }

    #[test]
    fn the_directory_is_made() {
        let rootfs = tempfile::tempdir().unwrap();
        let me = fs::metadata(rootfs.path()).unwrap();
        if me.uid() == me.gid() {
            own_store(rootfs.path(), me.uid()).unwrap();
            assert!(rootfs.path().join("var/lib/skerry").is_dir());
        }
    }
}
