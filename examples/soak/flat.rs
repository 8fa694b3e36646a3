//! Whether what the proxy takes stays as it is.

use std::time::Duration;

use crate::book::Book;
use crate::proxy::{Figures, LIFE};

/// What was seen over time.
#[derive(Debug)]
pub(crate) struct Samples {
    time: Duration,
    taken: Vec<(Duration, Figures)>,
    next: Duration,
    next_line: Duration,
}

/// What it is called, where it is, and how much more of it is nothing.
type Line = (&'static str, fn(&Figures) -> u64, u64);

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(2);
/// How late what has expired may go: behind a disk that was full, or a start that had other things to do.
const LATE: Duration = Duration::from_secs(75);
/// When the store of a proxy at rest should be empty.
pub(crate) const EMPTY: Duration = LIFE.saturating_add(LATE);
/// What a proxy that has just started takes says nothing.
const YOUNG: Duration = Duration::from_secs(8);

impl Samples {
    pub(crate) fn new(time: Duration) -> Self {
        Self { time, taken: Vec::new(), next: Duration::ZERO, next_line: Self::line(time) }
    }

    /// How often a line is printed.
    fn line(time: Duration) -> Duration {
        (time / 10).clamp(Duration::from_secs(5), Duration::from_mins(1))
    }

    /// Looks, if it is time to; whether a line is to be printed.
    pub(crate) fn take(&mut self, at: Duration, age: Duration, figures: Figures) -> bool {
        if at >= self.next && age > YOUNG {
            self.next = at + EVERY;
            self.taken.push((at, figures));
        }
        let is_line = at >= self.next_line;
        if is_line {
            self.next_line = at + Self::line(self.time);
        }
        is_line
    }

    /// Compares the last third of the time with the third after the first sixth. Of results there is as much as is live,
    /// so it is looked how old they become.
    pub(crate) fn judge(&self, book: &Book) {
        let (start, third) = (self.time / 6, self.time / 3);
        let median = |from: Duration, of: fn(&Figures) -> u64| {
            let within = self.taken.iter().filter(|(at, _)| *at >= from && *at < from + third);
            let mut values: Vec<u64> = within.map(|(_, figures)| of(figures)).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied()
        };
        let lines: [Line; 4] = [
            ("KiB of memory", |figures| figures.rss, 24 << 10),
            ("descriptors", |figures| figures.files, 20),
            ("threads", |figures| figures.threads, 8),
            ("KiB of the database", |figures| figures.database, 8 << 10),
        ];
        for (name, of, slack) in lines {
            let (Some(early), Some(late)) = (median(start, of), median(third * 2, of)) else {
                println!("{name}: too few figures to compare");
                continue;
            };
            println!("{name}: {early} in the first half, {late} at the end (medians)");
            if late > early + early / 5 + slack {
                book.wrong(format!("{name} have grown from {early} to {late}"));
            }
        }
        let oldest = self.taken.iter().map(|(_, figures)| figures.results.oldest).max().unwrap_or_default();
        println!("the oldest result was {} s old, of {} s that it may be kept", oldest.as_secs(), LIFE.as_secs());
        if oldest > LIFE + LATE {
            book.wrong(format!("the file of a result was kept for {oldest:?}"));
        }
    }
}

/// Compares what is there without load, before and after; `tasks`: how many are left when all have expired.
pub(crate) fn judge_rest(before: &Figures, after: &Figures, tasks: Option<u64>, book: &Book) {
    if tasks != Some(0) || after.results.count > 0 {
        let files = after.results.count;
        book.wrong(format!("all has expired, and the store still has {tasks:?} tasks and {files} files of results"));
    }
    if after.files > before.files + 10 || after.threads > before.threads + 10 {
        book.wrong(format!("at rest there were {before}, and now there are {after}"));
    }
}
