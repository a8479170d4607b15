//! Containers' logs: one file per run, each line with its time, and what `kubectl logs` asks of them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncSeekExt, AsyncWriteExt, BufReader};

use crate::api::{Clock, LogRequest, LogStream};

/// How often a log that is followed is looked at.
const FOLLOW: Duration = Duration::from_millis(100);

/// A line longer than this is cut into several.
const LONGEST_LINE: u64 = 16 * 1024;

/// Where the runs of a pod's containers are logged.
#[derive(Debug, Clone)]
pub(super) struct LogFolder(pub(super) PathBuf);

impl LogFolder {
    /// The file of a run; runs are numbered from 1.
    pub(super) fn file(&self, container: &str, run: u32) -> PathBuf {
        self.0.join(container).join(format!("{run}.log"))
    }

    /// The file of the last run, or of the one before it.
    async fn last(&self, container: &str, previous: bool) -> Option<PathBuf> {
        let mut runs = vec![];
        let mut folder = tokio::fs::read_dir(self.0.join(container)).await.ok()?;
        while let Ok(Some(entry)) = folder.next_entry().await {
            let name = entry.file_name();
            runs.extend(
                name.to_str()
                    .and_then(|name| name.strip_suffix(".log")?.parse::<u32>().ok()),
            );
        }
        runs.sort_unstable();
        let run = runs.into_iter().rev().nth(usize::from(previous))?;
        Some(self.file(container, run))
    }

    /// The part of a container's log that is asked for. `running` says whether the run goes on.
    pub(super) async fn read(
        &self,
        request: &LogRequest,
        now: Timestamp,
        running: impl Fn() -> bool + Send + 'static,
    ) -> io::Result<LogStream> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "the container has not run, or not so often");
        let path = self
            .last(&request.container, request.previous)
            .await
            .ok_or_else(missing)?;
        let mut file = tokio::fs::File::open(path).await?;
        let mut text = vec![];
        file.read_to_end(&mut text).await?;
        text.truncate(size(end_of_lines(&text)));
        let begun = select(&text, request, now);
        if !request.follow || request.previous {
            return Ok(stream::once(async move { Ok(begun) }).boxed());
        }
        let timestamps = request.timestamps;
        file.seek(io::SeekFrom::Start(end_of_lines(&text))).await?;
        // The file stays open: the pod's folder may go before the last lines were read.
        let rest = stream::unfold((file, Vec::new(), false), move |(mut file, mut begun, last)| {
            let running = running();
            async move {
                if last {
                    return None;
                }
                tokio::time::sleep(FOLLOW).await;
                let read = file.read_to_end(&mut begun).await;
                let half = begun.split_off(size(end_of_lines(&begun)));
                let lines = begun
                    .split_inclusive(|byte| *byte == b'\n')
                    .flat_map(|line| show(line, timestamps));
                let shown = read.map(|_| lines.copied().collect::<Bytes>());
                // The last lines may come after the end: one more look.
                let last = !running || shown.is_err();
                Some((shown, (file, half, last)))
            }
        });
        let rest = rest.filter(|part| std::future::ready(part.as_ref().map_or(true, |part| !part.is_empty())));
        Ok(stream::once(async move { Ok(begun) }).chain(rest).boxed())
    }
}

/// Where the last complete line ends.
fn end_of_lines(text: &[u8]) -> u64 {
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    u64::try_from(end).unwrap_or(u64::MAX)
}

/// The lines that the options ask for.
fn select(text: &[u8], request: &LogRequest, now: Timestamp) -> Bytes {
    let after = request.since_seconds.and_then(|seconds| {
        let seconds = i64::try_from(seconds).ok()?;
        now.checked_sub(jiff::SignedDuration::from_secs(seconds)).ok()
    });
    let lines: Vec<&[u8]> = text
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| after.is_none_or(|after| written(line).is_none_or(|at| at >= after)))
        .collect();
    let skip = request
        .tail_lines
        .map_or(0, |tail| lines.len().saturating_sub(size(tail)));
    let mut shown: Vec<u8> = lines
        .into_iter()
        .skip(skip)
        .flat_map(|line| show(line, request.timestamps))
        .copied()
        .collect();
    shown.truncate(request.limit_bytes.map_or(usize::MAX, size));
    Bytes::from(shown)
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A stored line, `TIME TEXT`, as it is shown.
fn show(line: &[u8], timestamps: bool) -> &[u8] {
    let text = line
        .iter()
        .position(|byte| *byte == b' ')
        .and_then(|space| line.get(space + 1..));
    if timestamps { line } else { text.unwrap_or(line) }
}

fn written(line: &[u8]) -> Option<Timestamp> {
    let end = line.iter().position(|byte| *byte == b' ')?;
    std::str::from_utf8(line.get(..end)?).ok()?.parse().ok()
}

/// Writes what a process says to its log until it closes its end.
pub(super) async fn record(source: impl AsyncRead + Unpin, path: PathBuf, clock: Clock) -> io::Result<()> {
    let mut file = tokio::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .await?;
    let mut source = BufReader::new(source);
    let mut line = vec![];
    loop {
        line.clear();
        (&mut source).take(LONGEST_LINE).read_until(b'\n', &mut line).await?;
        if line.is_empty() {
            return Ok(());
        }
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        let mut stamped = format!("{:.9} ", clock.now()).into_bytes();
        stamped.append(&mut line);
        // One write per line, so that both outputs of a process do not mix within lines.
        file.write_all(&stamped).await?;
        file.flush().await?;
    }
}

/// The longest message that a container leaves in its pod's status.
const LAST_WORDS: usize = 2048;

/// The end of a run's log, for the status of a container that failed.
pub(super) fn last_words(log: &Path) -> Option<String> {
    let text = std::fs::read(log).ok()?;
    let shown: Vec<u8> = text
        .split_inclusive(|byte| *byte == b'\n')
        .flat_map(|line| show(line, false))
        .copied()
        .collect();
    let start = shown.len().saturating_sub(LAST_WORDS);
    let end = String::from_utf8_lossy(shown.get(start..)?).trim_end().to_owned();
    (!end.is_empty()).then_some(end)
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

    use super::*;

    fn clock() -> Clock {
        Clock::starting_at("2026-01-01T00:00:10Z".parse().unwrap())
    }

    /// A request for the log of the container `c`.
    fn asked(change: impl FnOnce(&mut LogRequest)) -> LogRequest {
        let container = "c".to_owned();
        let mut request = LogRequest {
            container,
            ..LogRequest::default()
        };
        change(&mut request);
        request
    }

    async fn read(folder: &LogFolder, change: impl FnOnce(&mut LogRequest)) -> String {
        let stream = folder.read(&asked(change), clock().now(), || false).await.unwrap();
        let parts: Vec<Bytes> = stream.try_collect().await.unwrap();
        String::from_utf8(parts.concat()).unwrap()
    }

    fn folder() -> (tempfile::TempDir, LogFolder) {
        let state = tempfile::tempdir().unwrap();
        let folder = LogFolder(state.path().to_owned());
        std::fs::create_dir_all(state.path().join("c")).unwrap();
        (state, folder)
    }

    #[tokio::test]
    async fn lines_are_kept_with_their_times() {
        let (_state, folder) = folder();
        let said = &b"one\ntwo two\nunfinished"[..];
        record(said, folder.file("c", 1), clock()).await.unwrap();
        assert_eq!(read(&folder, |_| {}).await, "one\ntwo two\nunfinished\n");
        let stamped = read(&folder, |request| request.timestamps = true).await;
        assert!(stamped.starts_with("2026-01-01T00:00:10."), "{stamped}");
        let tail = read(&folder, |request| request.tail_lines = Some(2)).await;
        assert_eq!(tail, "two two\nunfinished\n");
        assert_eq!(read(&folder, |request| request.limit_bytes = Some(5)).await, "one\nt");
    }

    #[tokio::test]
    async fn old_lines_and_old_runs_are_told_apart() {
        let (_state, folder) = folder();
        let log = "2026-01-01T00:00:01Z old\n2026-01-01T00:00:08Z new\n";
        std::fs::write(folder.file("c", 2), log).unwrap();
        std::fs::write(folder.file("c", 1), "2026-01-01T00:00:00Z first run\n").unwrap();
        assert_eq!(read(&folder, |request| request.since_seconds = Some(5)).await, "new\n");
        assert_eq!(read(&folder, |request| request.previous = true).await, "first run\n");
        let absent = LogFolder(folder.0.join("absent"));
        let none = absent.read(&asked(|_| {}), clock().now(), || false).await;
        assert_eq!(none.err().unwrap().kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test(start_paused = true)]
    async fn a_followed_log_goes_on_until_the_run_ends() {
        use std::io::Write;
        use std::sync::Arc;
        use std::sync::atomic::{AtomicBool, Ordering};
        let (_state, folder) = folder();
        let path = folder.file("c", 1);
        let mut log = std::fs::File::create(&path).unwrap();
        log.write_all(b"2026-01-01T00:00:00Z a\n").unwrap();
        let running = Arc::new(AtomicBool::new(true));
        let seen = running.clone();
        let alive = move || seen.load(Ordering::SeqCst);
        let follow = asked(|request| request.follow = true);
        let mut stream = folder.read(&follow, clock().now(), alive).await.unwrap();
        assert_eq!(stream.next().await.unwrap().unwrap(), "a\n");
        log.write_all(b"2026-01-01T00:00:01Z b\n2026-01-01T00:00:02Z half")
            .unwrap();
        assert_eq!(stream.next().await.unwrap().unwrap(), "b\n");
        running.store(false, Ordering::SeqCst);
        std::fs::remove_file(&path).unwrap();
        log.write_all(b" done\n").unwrap();
        assert_eq!(stream.next().await.unwrap().unwrap(), "half done\n");
        assert!(stream.next().await.is_none());
    }
}
