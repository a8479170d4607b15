//! What is fetched for a worker before it starts: archives, and indexes of what to fetch. Whatever is in them stays in the
//! folder that it is fetched to.

use std::{
    fs,
    path::{Path, PathBuf},
};

use skerry_storage_initializer::{Archive, Settings, fetch_all, unpack};
use tempfile::TempDir;
use tokio::runtime::Builder;

use crate::Came;

/// A good archive has one of these names.
const NAMES: [&str; 3] = ["a.tar", "a.tar.gz", "a.zip"];

/// The first byte says what it is taken for.
pub(crate) fn archive(data: &[u8]) -> Came {
    let (first, data) = data.split_first().unwrap_or((&0, &[]));
    let name = NAMES.get(usize::from(*first) % NAMES.len()).unwrap_or(&NAMES[0]);
    let world = World::new();
    let file = world.inside().join(name);
    fs::write(&file, data).unwrap();
    let kind = Archive::of(name).unwrap();
    let unpacked = unpack("url", kind, &file, &world.inside());
    world.check();
    match unpacked {
        Ok(()) => Came::taken(format!("{kind:?} {}", "entry ".repeat(world.entries().len().min(3)))),
        Err(error) => Came::refused(world.without_paths(&error.to_string())),
    }
}

/// An index of files; one that names a server is left alone.
pub(crate) fn index(data: &[u8]) -> Came {
    if String::from_utf8_lossy(data).contains("://") {
        return Came::refused("a server");
    }
    let world = World::new();
    let (file, data_folder) = (world.0.path().join("index"), world.0.path().join("data"));
    fs::create_dir_all(data_folder.join("b")).unwrap();
    fs::write(data_folder.join("a"), "a").unwrap();
    // What is at a place that differs from run to run has a name that does not.
    let text = String::from_utf8_lossy(data).replace("DATA", &data_folder.display().to_string());
    fs::write(&file, text).unwrap();
    let args = [file.display().to_string(), format!("@{}", world.inside().display())];
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let fetched = runtime.block_on(fetch_all(&args, Settings::new([])));
    drop(runtime);
    world.check();
    match fetched {
        Ok(()) => Came::taken("entry ".repeat(world.entries().len().min(3))),
        Err(error) => Came::refused(world.without_paths(&error.to_string())),
    }
}

/// A folder to fetch to, beside one that nobody may touch.
struct World(TempDir);

impl World {
    fn new() -> Self {
        let world = Self(
            tempfile::tempdir_in("/dev/shm")
                .or_else(|_| tempfile::tempdir())
                .unwrap(),
        );
        fs::create_dir(world.inside()).unwrap();
        fs::create_dir(world.outside()).unwrap();
        fs::write(world.outside().join("kept"), "kept").unwrap();
        world
    }

    fn inside(&self) -> PathBuf {
        self.0.path().join("inside")
    }

    fn outside(&self) -> PathBuf {
        self.0.path().join("outside")
    }

    /// Nothing is there but what was there, and what is in the folder.
    fn check(&self) {
        let outside: Vec<_> = fs::read_dir(self.outside())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(outside, ["kept"], "written outside the folder");
        assert_eq!(
            fs::read_to_string(self.outside().join("kept")).unwrap(),
            "kept",
            "written outside the folder"
        );
        for entry in fs::read_dir(self.0.path()).unwrap() {
            let name = entry.unwrap().file_name();
            assert!(
                ["inside", "outside", "index", "data"]
                    .iter()
                    .any(|known| name == *known),
                "{} was written",
                name.display()
            );
        }
    }

    /// All that is in the folder, links not followed.
    fn entries(&self) -> Vec<PathBuf> {
        fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    walk(&entry.path(), found);
                }
                found.push(entry.path());
            }
        }
        let mut found = Vec::new();
        walk(&self.inside(), &mut found);
        found
    }

    fn without_paths(&self, sentence: &str) -> String {
        sentence.replace(&self.0.path().display().to_string(), "")
    }
}
