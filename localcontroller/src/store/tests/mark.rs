//! Whether an old store that is put back is known, and whether one that goes on never is taken for one.

use std::{fs, time::Duration};

use rusqlite::Connection;

use super::{
    super::schema::{STEPS, migrate},
    Clock, Home, batch, event, home, open,
};

/// The files of a store, by what follows its name.
type Files = Vec<(&'static str, Option<Vec<u8>>)>;

const DATABASE: [&str; 2] = ["", "-wal"];
const MARK: [&str; 1] = [".mark"];

impl Home {
    fn file(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.path.display())
    }

    fn copy<const N: usize>(&self, suffixes: [&'static str; N]) -> Files {
        suffixes.map(|suffix| (suffix, fs::read(self.file(suffix)).ok())).into()
    }

    fn put_back(&self, files: &Files) {
        for (suffix, content) in files {
            match content {
                Some(content) => fs::write(self.file(suffix), content).unwrap(),
                None => drop(fs::remove_file(self.file(suffix))),
            }
        }
    }

    /// Opens the store and closes it; whether it is an old one.
    async fn is_put_back(&self) -> bool {
        let store = open(self).await;
        if store.is_put_back() {
            store.put_back_is_told().await;
        }
        store.close().await;
        store.is_put_back()
    }
}

/// Where there is no store yet.
fn elsewhere() -> Home {
    let home = home();
    fs::create_dir_all(home.path.parent().unwrap()).unwrap();
    home
}

/// A store that was used.
async fn used() -> Home {
    let home = home();
    let store = open(&home).await;
    assert!(!store.is_put_back(), "it is new");
    store.apply(batch(1, Vec::new())).await.unwrap();
    store.push(event("a", "x")).await.unwrap();
    store.close().await;
    home
}

#[tokio::test]
async fn a_copy_is_known_when_it_is_put_back_and_from_then_on_it_is_the_store() {
    let home = used().await;
    let old = home.copy(DATABASE);
    assert!(!home.is_put_back().await, "it goes on");
    home.put_back(&old);
    assert!(home.is_put_back().await);
    assert!(!home.is_put_back().await);
    home.put_back(&old);
    assert!(home.is_put_back().await, "again");
}

#[tokio::test]
async fn a_copy_of_the_start_that_ended_last_is_known() {
    let home = used().await;
    let store = open(&home).await;
    let old = home.copy(DATABASE);
    store.close().await;
    home.put_back(&old);
    assert!(home.is_put_back().await);
}

#[tokio::test]
async fn a_copy_of_a_start_that_was_killed_is_known_if_it_is_an_hour_old() {
    let (home, clock) = (used().await, Clock::default());
    let store = clock.open(&home).await;
    let old = home.copy(DATABASE);
    for (passes, is_known) in [(3599, false), (1, true)] {
        clock.go_on(Duration::from_secs(passes));
        store.give_up_old().await.unwrap();
        // The answer comes before the mark is looked at, which is looked at before what comes next.
        store.position().await.unwrap();
        let killed = elsewhere();
        killed.put_back(&old);
        killed.put_back(&home.copy(MARK));
        assert_eq!(killed.is_put_back().await, is_known, "after {passes} s more");
    }
    store.close().await;
}

#[tokio::test]
async fn a_crash_between_any_two_steps_is_no_old_store() {
    let home = used().await;
    for _again in 0..3 {
        let before = home.copy(MARK);
        let store = open(&home).await;
        let (database, after) = (home.copy(DATABASE), home.copy(MARK));
        assert_ne!(before, after);
        for mark in [&before, &after] {
            let crashed = elsewhere();
            crashed.put_back(&database);
            crashed.put_back(mark);
            assert!(!crashed.is_put_back().await);
            assert!(!crashed.is_put_back().await);
        }
        store.close().await;
    }
}

#[tokio::test]
async fn a_new_store_beside_an_old_mark_is_no_old_store() {
    for damage in [None, Some(vec![0; 8192])] {
        let home = used().await;
        home.put_back(&vec![("", damage)]);
        assert!(!home.is_put_back().await);
        assert!(!home.is_put_back().await);
    }
}

#[tokio::test]
async fn without_its_mark_a_store_goes_on() {
    let home = used().await;
    fs::remove_file(home.file(".mark")).unwrap();
    assert!(!home.is_put_back().await);
    assert!(!home.is_put_back().await);
}

#[tokio::test]
async fn each_start_says_it_until_one_has_told_it() {
    let home = used().await;
    let old = home.copy(DATABASE);
    assert!(!home.is_put_back().await);
    home.put_back(&old);
    for _start in 0..3 {
        let store = open(&home).await;
        assert!(store.is_put_back(), "nobody was told");
        store.push(event("a", "y")).await.unwrap();
        store.close().await;
    }
    assert!(home.is_put_back().await);
    assert!(!home.is_put_back().await);
}

#[tokio::test]
async fn the_file_gets_no_mark_that_the_store_does_not_know() {
    let home = used().await;
    let store = open(&home).await;
    let before = home.copy(MARK);
    store.break_mark().await;
    store.close().await;
    assert_eq!(home.copy(MARK), before);
    assert!(!home.is_put_back().await);
    assert_ne!(home.copy(MARK), before);
}

#[tokio::test]
async fn a_mark_that_cannot_be_read_is_not_taken_for_none() {
    let home = used().await;
    let mark = home.copy(MARK);
    let in_the_way = home.file(".mark");
    fs::remove_file(&in_the_way).unwrap();
    fs::create_dir(&in_the_way).unwrap();
    assert!(!home.is_put_back().await);
    fs::remove_dir(&in_the_way).unwrap();
    home.put_back(&mark);
    assert!(!home.is_put_back().await, "the store knows it still");
}

#[tokio::test]
async fn a_damaged_mark_is_none() {
    for damage in [&b""[..], b"\0\0\0", b"\xff", b"something else"] {
        let home = used().await;
        fs::write(home.file(".mark"), damage).unwrap();
        assert!(!home.is_put_back().await);
        assert!(!home.is_put_back().await);
    }
    for damage in ["DELETE FROM mark", "UPDATE mark SET known = CAST(x'ff' AS TEXT)"] {
        let home = used().await;
        let database = Connection::open(&home.path).unwrap();
        database.execute(damage, []).unwrap();
        database.close().unwrap();
        assert!(!home.is_put_back().await);
        let old = home.copy(DATABASE);
        assert!(!home.is_put_back().await);
        home.put_back(&old);
        assert!(home.is_put_back().await, "it has one again");
    }
}

#[tokio::test]
async fn a_mark_that_cannot_be_written_stops_nothing() {
    let home = used().await;
    let old = home.copy(DATABASE);
    let in_the_way = home.file(".mark.new");
    fs::create_dir(&in_the_way).unwrap();
    for _again in 0..3 {
        let store = open(&home).await;
        assert!(!store.is_put_back());
        store.push(event("a", "y")).await.unwrap();
        store.close().await;
    }
    fs::remove_dir(&in_the_way).unwrap();
    assert!(!home.is_put_back().await);
    home.put_back(&old);
    assert!(home.is_put_back().await);
}

#[tokio::test]
async fn a_store_of_a_release_without_marks_is_taken_over_and_known_when_it_is_put_back() {
    let home = used().await;
    fs::remove_file(&home.path).unwrap();
    fs::remove_file(home.file(".mark")).unwrap();
    let mut older = Connection::open(&home.path).unwrap();
    migrate(&mut older, &home.path, &STEPS[..5]).unwrap();
    older.execute("UPDATE outbox_last SET seq = 7", []).unwrap();
    older.close().unwrap();
    let old = home.copy(DATABASE);
    assert!(!home.is_put_back().await);
    home.put_back(&old);
    assert!(home.is_put_back().await);
}
