//! What was done, what happened and how long it took: live on a terminal, line by line elsewhere, and as a table at the end.

use std::{
    io::IsTerminal as _,
    time::{Duration, Instant},
};

use comfy_table::{Cell, CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::{Failure, print};

/// The record of a demo.
pub(crate) struct Timeline {
    started: Instant,
    rows: Vec<Row>,
    live: Option<ProgressBar>,
}

struct Row {
    at: Duration,
    did: String,
    happened: String,
    took: Duration,
}

impl Timeline {
    /// A record that starts now; `plain` for no terminal.
    pub(crate) fn start(plain: bool) -> Self {
        let live = (!plain && std::io::stdout().is_terminal()).then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>4}  {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self {
            started: Instant::now(),
            rows: vec![],
            live,
        }
    }

    /// Something on its way: replaces what was shown so far, or is a line of its own.
    pub(crate) fn progress(&self, text: &str) -> Result<(), Failure> {
        match &self.live {
            Some(bar) => {
                bar.set_message(text.to_owned());
                Ok(())
            }
            None => self.line(&format!("        {text}")),
        }
    }

    /// Something that was done, and was seen to have happened.
    pub(crate) fn record(&mut self, did: &str, happened: &str, since: Instant) -> Result<(), Failure> {
        let took = since.elapsed();
        self.line(&format!(
            "{:>5.1} s  {did}: {happened} ({:.2} s)",
            self.started.elapsed().as_secs_f64(),
            took.as_secs_f64()
        ))?;
        let at = since.saturating_duration_since(self.started);
        self.rows.push(Row {
            at,
            did: did.to_owned(),
            happened: happened.to_owned(),
            took,
        });
        Ok(())
    }

    fn line(&self, text: &str) -> Result<(), Failure> {
        match &self.live {
            Some(bar) => {
                bar.println(text);
                Ok(())
            }
            None => print(&format!("{text}\n")),
        }
    }

    /// How long it has been.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The table of all that was recorded.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        if let Some(bar) = self.live.take() {
            bar.finish_and_clear();
        }
        let mut table = Table::new();
        table
            .load_style(UTF8_HORIZONTAL_ONLY)
            .set_header(["at", "did", "happened", "took"]);
        for Row {
            at,
            did,
            happened,
            took,
        } in &self.rows
        {
            let seconds =
                |time: &Duration| Cell::new(format!("{:.2} s", time.as_secs_f64())).set_alignment(CellAlignment::Right);
            table.add_row([seconds(at), Cell::new(did), Cell::new(happened), seconds(took)]);
        }
        print(&format!("\n{table}\n"))
    }
}
