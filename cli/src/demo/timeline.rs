//! What was done, what happened and how long it took: live on a terminal, line by line elsewhere, and once more at the
//! end, without what was seen on the way.

use std::{
    fmt::Write as _,
    io::IsTerminal as _,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::{Failure, print};

/// The record of a demo.
pub(crate) struct Timeline {
    started: Instant,
    rows: Vec<Row>,
    /// What was shown last of what is on its way.
    shown: String,
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
            shown: String::new(),
            live,
        }
    }

    /// Something on its way: replaces what was shown so far, or is a line of its own. What was shown last is not shown
    /// again.
    pub(crate) fn progress(&mut self, text: &str) -> Result<(), Failure> {
        if self.shown == text {
            return Ok(());
        }
        text.clone_into(&mut self.shown);
        match &self.live {
            Some(bar) => {
                bar.set_message(text.to_owned());
                Ok(())
            }
            None => print(&format!("         {text}\n")),
        }
    }

    /// Something that was done, and was seen to have happened.
    pub(crate) fn record(&mut self, did: &str, happened: &str, since: Instant) -> Result<(), Failure> {
        let row = Row {
            at: since.saturating_duration_since(self.started),
            did: did.to_owned(),
            happened: happened.to_owned(),
            took: since.elapsed(),
        };
        let text = row.text();
        self.rows.push(row);
        self.shown.clear();
        match &self.live {
            Some(bar) => {
                bar.println(text.trim_end());
                Ok(())
            }
            None => print(&text),
        }
    }

    /// How long it has been.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Prints all that was recorded.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        if let Some(bar) = self.live.take() {
            bar.finish_and_clear();
        }
        let mut text = "\n  at       took     what was done, and what was seen\n".to_owned();
        for row in &self.rows {
            // Writing to a text does not fail.
            let _ = write!(text, "{}", row.text());
        }
        print(&text)
    }
}

impl Row {
    /// Two lines, of no more than 80 columns where the words allow it.
    fn text(&self) -> String {
        let (at, took) = (self.at.as_secs_f64(), self.took.as_secs_f64());
        let Self { did, happened, .. } = self;
        format!("{at:>5.1} s {took:>6.2} s   {did}\n                   ✓ {happened}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_when_what_and_how_long() {
        let row = Row {
            at: Duration::from_millis(4_640),
            did: "killed the worker".to_owned(),
            happened: "it runs again".to_owned(),
            took: Duration::from_millis(44),
        };
        assert_eq!(
            row.text(),
            "  4.6 s   0.04 s   killed the worker\n                   ✓ it runs again\n"
        );
    }
}
