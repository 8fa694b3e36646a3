//! Whether what the proxy takes stays as it is.

use std::time::Duration;

use crate::book::Book;
use crate::proxy::Figures;

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

    /// Compares the last third of the time with the third after the first sixth.
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
            ("KiB of disk", |figures| figures.disk, 24 << 10),
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
    }
}

/// Compares what is there without load, before and after.
pub(crate) fn judge_rest(before: &Figures, after: &Figures, book: &Book) {
    if after.files > before.files + 10 || after.threads > before.threads + 10 {
        book.wrong(format!("at rest there were {before}, and now there are {after}"));
    }
}
