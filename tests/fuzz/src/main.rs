//! `skerry-fuzz`: runs fuzz targets on any toolchain, each in a process of its own, and keeps what ended one.
//!
//! Decides how long and how many at a time; what fails is decided by the targets.

use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode, ExitStatus, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::Parser;
use skerry_fuzz::{
    TARGETS, Target,
    campaign::{self, Summary},
    target,
};

/// How much longer than asked a target may take: the last input may be a slow one.
const GRACE: Duration = Duration::from_secs(30);
/// Processes that are started to make a found input shorter.
const SHORTER: u32 = 400;

/// Runs fuzz targets for a while each; what ends one is kept, and named.
#[derive(Parser)]
struct Cli {
    /// For how long each target runs, in seconds
    #[arg(long, default_value_t = 60, value_name = "N")]
    seconds: u64,
    /// How many run at a time
    #[arg(long, default_value_t = 2, value_name = "N")]
    jobs: usize,
    /// Which; all where this is absent
    #[arg(long, value_delimiter = ',', value_name = "TARGET,…")]
    only: Vec<String>,
    /// What inputs are made by: the same number makes the same ones. Another one each time where this is absent
    #[arg(long, value_name = "N")]
    number: Option<u64>,
    /// Where inputs are kept that end a target
    #[arg(long, default_value = "target/fuzz", value_name = "FOLDER")]
    found: PathBuf,
    /// Print the ways that inputs went
    #[arg(long)]
    ways: bool,
    /// List the targets
    #[arg(long)]
    list: bool,
    /// Read these inputs once by the one target of --only, and make no others
    inputs: Vec<PathBuf>,
    /// Be the process of that target, and note each input here
    #[arg(long, hide = true)]
    note: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    let targets = chosen(&cli.only)?;
    if cli.list {
        for Target { name, reads, .. } in TARGETS {
            println!("{name:18} {reads}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    match (targets.as_slice(), &cli.note, cli.inputs.as_slice()) {
        ([target], Some(note), _) => {
            campaign::bound()?;
            let time = Duration::from_secs(cli.seconds);
            let summary = campaign::run(target, cli.number.unwrap_or_default(), time, note)?;
            println!("{}", serde_json::to_string(&summary)?);
            Ok(ExitCode::SUCCESS)
        }
        ([target], None, [_, ..]) => {
            campaign::bound()?;
            for path in &cli.inputs {
                let input = fs::read(path).with_context(|| path.display().to_string())?;
                println!("{}: {:?}", path.display(), (target.run)(&input));
            }
            Ok(ExitCode::SUCCESS)
        }
        (_, _, [_, ..]) => bail!("--only has to name the one target that reads these inputs"),
        (targets, _, []) => Ok(all(&cli, targets)),
    }
}

fn chosen(only: &[String]) -> anyhow::Result<Vec<&'static Target>> {
    if only.is_empty() {
        return Ok(TARGETS.iter().collect());
    }
    let known =
        |name: &String| target(name).with_context(|| format!("--only: there is no target {name}; --list names all"));
    only.iter().map(known).collect()
}

/// Runs targets, so many at a time.
fn all(cli: &Cli, targets: &[&'static Target]) -> ExitCode {
    let number = cli.number.unwrap_or_else(rand::random);
    println!("{} targets, {} s each, --number {number}", targets.len(), cli.seconds);
    println!(
        "{:18} {:>10} {:>10} {:>7} {:>5} {:>9}",
        "", "inputs", "inputs/s", "taken", "ways", "slowest"
    );
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..cli.jobs.max(1) {
            scope.spawn(|| {
                while let Some(target) = targets.get(next.fetch_add(1, Relaxed)) {
                    match one(cli, target, number) {
                        Ok(summary) => print(target, &summary, cli.ways),
                        Err(error) => {
                            println!("{:18} FAILED", target.name);
                            failures.lock().unwrap_or_else(PoisonError::into_inner).push(error);
                        }
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    for error in &failures {
        eprintln!("\n{error:#}");
    }
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn print(target: &Target, summary: &Summary, ways: bool) {
    let Summary {
        executions,
        taken,
        ways: went,
        seconds,
        slowest,
    } = summary;
    #[expect(clippy::cast_precision_loss, reason = "numbers of inputs fit")]
    let (per_second, share) = (*executions as f64 / seconds, *taken as f64 / *executions as f64 * 100.0);
    println!(
        "{:18} {executions:>10} {per_second:>10.0} {share:>6.1}% {:>5} {:>6.0} ms",
        target.name,
        went.len(),
        slowest * 1000.0
    );
    if ways {
        for (way, times) in went {
            println!("    {times:>8} {way}");
        }
    }
}

/// Runs one target to its end, or to an input that ends it.
fn one(cli: &Cli, target: &Target, number: u64) -> anyhow::Result<Summary> {
    let folder = tempfile::tempdir()?;
    let note = folder.path().join("note");
    let run = Run {
        target,
        folder: folder.path(),
    };
    let arguments = [
        "--seconds".to_owned(),
        cli.seconds.to_string(),
        "--number".to_owned(),
        number.to_string(),
        "--note".to_owned(),
        note.display().to_string(),
    ];
    let (ended, out, errors) = run.process(&arguments, Duration::from_secs(cli.seconds) + GRACE)?;
    if ended.is_some_and(|status| status.success()) {
        return Ok(serde_json::from_str(&out)?);
    }
    let input = fs::read(&note).with_context(|| format!("{} ended before it read anything:\n{errors}", target.name))?;
    let (input, errors) = run.shorter(input, errors, ended.is_none())?;
    fs::create_dir_all(&cli.found)?;
    let kept = cli.found.join(format!("{}-{number}", target.name));
    fs::write(&kept, &input)?;
    let why = match ended {
        None => format!("did not end {} s after its time", GRACE.as_secs()),
        Some(status) => status.signal().map_or_else(
            || "panicked".to_owned(),
            |signal| format!("was ended by signal {signal}"),
        ),
    };
    let kept = kept.display();
    bail!(
        "{name} {why} on {} bytes, kept in {kept}; read them again with `skerry-fuzz --only {name} {kept}`\n{}",
        input.len(),
        errors.trim(),
        name = target.name
    )
}

struct Run<'a> {
    target: &'a Target,
    folder: &'a Path,
}

impl Run<'_> {
    /// A process of this target: how it ended, if it did in time, and what it said.
    fn process(&self, arguments: &[String], time: Duration) -> anyhow::Result<(Option<ExitStatus>, String, String)> {
        let (out, errors) = (self.folder.join("out"), self.folder.join("errors"));
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--only", self.target.name])
            .args(arguments)
            .env("TMPDIR", self.folder)
            .stdin(Stdio::null())
            .stdout(fs::File::create(&out)?)
            .stderr(fs::File::create(&errors)?)
            .spawn()?;
        let begun = Instant::now();
        let ended = loop {
            match child.try_wait()? {
                Some(status) => break Some(status),
                None if begun.elapsed() > time => {
                    child.kill()?;
                    child.wait()?;
                    break None;
                }
                None => thread::sleep(Duration::from_millis(5)),
            }
        };
        let text = |path: &Path| fs::read(path).map(|text| String::from_utf8_lossy(&text).into_owned());
        Ok((ended, text(&out)?, text(&errors)?))
    }

    /// An input that ends the target as this one does, with less in it, and what the target says of it.
    fn shorter(&self, mut input: Vec<u8>, mut errors: String, hangs: bool) -> anyhow::Result<(Vec<u8>, String)> {
        if hangs {
            return Ok((input, errors));
        }
        let path = self.folder.join("shorter");
        let (mut part, mut left) = (input.len() / 2, SHORTER);
        while part > 0 {
            let mut at = 0;
            while at < input.len() && left > 0 {
                left -= 1;
                let mut less = input.clone();
                less.drain(at..(at + part).min(input.len()));
                fs::write(&path, &less)?;
                let (ended, _, said) = self.process(&[path.display().to_string()], GRACE)?;
                if ended.is_some_and(|status| !status.success()) {
                    (input, errors) = (less, said);
                } else {
                    at += part;
                }
            }
            part /= 2;
        }
        Ok((input, errors))
    }
}
