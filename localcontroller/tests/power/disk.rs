//! A disk under SQLite that forgets, when the power fails, what was not synced: none of it survives, or some, as it happens.

use std::{
    collections::BTreeMap,
    io::{Error, ErrorKind, Result},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rand::{Rng as _, rngs::StdRng};
use sqlite_vfs::{DatabaseHandle, LockKind, OpenKind, OpenOptions, Vfs, WalDisabled};

/// The disk. Files are opened by their path; that they are there is remembered from their first sync on.
#[derive(Clone, Default)]
pub struct Disk(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    files: BTreeMap<String, File>,
    /// How often the power has failed.
    failures: u64,
    syncs: u64,
}

#[derive(Default)]
struct File {
    content: Vec<u8>,
    synced: Option<Vec<u8>>,
    /// Since the last sync.
    changes: Vec<Change>,
}

enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Length(usize),
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write { at, bytes } => {
                let end = at + bytes.len();
                content.resize(content.len().max(end), 0);
                content[*at..end].copy_from_slice(bytes);
            }
            Self::Length(length) => content.resize(*length, 0),
        }
    }
}

impl Disk {
    /// Puts every database of this process on it.
    pub fn serve(&self) {
        sqlite_vfs::register("power", self.clone(), true).unwrap();
    }

    /// The power fails. Whoever has a file open can do nothing with it any more.
    pub fn fail(&self, random: &mut StdRng) {
        let mut state = self.lock();
        state.failures += 1;
        let torn = random.random();
        state.files.retain(|_, file| {
            let Some(mut content) = file.synced.take() else {
                return false;
            };
            let survives = |_: &&Change| torn && random.random();
            let surviving = std::mem::take(&mut file.changes);
            surviving
                .iter()
                .filter(survives)
                .for_each(|change| change.apply(&mut content));
            file.synced = Some(content.clone());
            file.content = content;
            true
        });
    }

    /// How often anything was synced.
    pub fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that is open.
pub struct Open {
    disk: Disk,
    path: String,
    /// How often the power had failed then.
    failures: u64,
    lock: LockKind,
}

impl Open {
    fn with<T>(&self, on: impl FnOnce(&mut File) -> Result<T>) -> Result<T> {
        let mut state = self.disk.lock();
        if state.failures != self.failures {
            return Err(Error::other("the power has failed"));
        }
        let file = state.files.get_mut(&self.path);
        on(file.ok_or_else(|| Error::from(ErrorKind::NotFound))?)
    }

    fn change(&self, change: Change) -> Result<()> {
        self.with(|file| {
            change.apply(&mut file.content);
            file.changes.push(change);
            Ok(())
        })
    }
}

fn size(number: u64) -> Result<usize> {
    usize::try_from(number).map_err(Error::other)
}

impl DatabaseHandle for Open {
    type WalIndex = WalDisabled;

    fn size(&self) -> Result<u64> {
        self.with(|file| Ok(file.content.len() as u64))
    }

    fn read_exact_at(&mut self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let offset = size(offset)?;
        self.with(|file| {
            let there = file.content.get(offset..).unwrap_or_default();
            let read = there.len().min(buffer.len());
            let (filled, missing) = buffer.split_at_mut(read);
            filled.copy_from_slice(&there[..read]);
            missing.fill(0);
            if missing.is_empty() {
                Ok(())
            } else {
                Err(ErrorKind::UnexpectedEof.into())
            }
        })
    }

    fn write_all_at(&mut self, buffer: &[u8], offset: u64) -> Result<()> {
        let (at, bytes) = (size(offset)?, buffer.to_vec());
        self.change(Change::Write { at, bytes })
    }

    fn sync(&mut self, _data_only: bool) -> Result<()> {
        self.with(|file| {
            file.synced = Some(file.content.clone());
            file.changes.clear();
            Ok(())
        })?;
        self.disk.lock().syncs += 1;
        Ok(())
    }

    fn set_len(&mut self, length: u64) -> Result<()> {
        self.change(Change::Length(size(length)?))
    }

    // Nobody but the store under test has it open.
    fn lock(&mut self, lock: LockKind) -> Result<bool> {
        self.lock = lock;
        Ok(true)
    }

    fn reserved(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn current_lock(&self) -> Result<LockKind> {
        Ok(self.lock)
    }

    fn wal_index(&self, _readonly: bool) -> Result<WalDisabled> {
        Ok(WalDisabled)
    }
}

impl Vfs for Disk {
    type Handle = Open;

    fn open(&self, path: &str, options: OpenOptions) -> Result<Open> {
        // As in a container that may write to the node's disk alone: there is no place for anything that is not kept.
        if !matches!(options.kind, OpenKind::MainDb | OpenKind::MainJournal | OpenKind::Wal) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let mut state = self.lock();
        state.files.entry(path.to_owned()).or_default();
        Ok(Open {
            disk: self.clone(),
            path: path.to_owned(),
            failures: state.failures,
            lock: LockKind::None,
        })
    }

    fn delete(&self, path: &str) -> Result<()> {
        self.lock().files.remove(path);
        Ok(())
    }

    fn exists(&self, path: &str) -> Result<bool> {
        Ok(self.lock().files.contains_key(path))
    }

    fn temporary_name(&self) -> String {
        format!("temporary-{}", self.lock().files.len())
    }

    fn random(&self, buffer: &mut [i8]) {
        rand::rng().fill(buffer);
    }

    fn sleep(&self, duration: Duration) -> Duration {
        std::thread::sleep(duration);
        duration
    }
}
