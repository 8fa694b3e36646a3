//! Reading on while a line is still being taken: that the input has ended shows in nothing else.

use std::collections::VecDeque;

use tokio::io::AsyncRead;

use crate::upstream::lines::{Line, Lines};

/// Lines, some of which were read before their turn.
#[derive(Debug)]
pub(super) struct Ahead<R> {
    lines: Lines<R>,
    waiting: VecDeque<Line>,
    /// What those that wait count for.
    size: usize,
}

/// Lines that wait may count for this much, and one more line: as much as a pipe or a socket holds of a host that is
/// gone. What a host that lives has to say beyond that it keeps.
const MOST: usize = 1 << 20;
/// What a line counts for besides its bytes.
const EACH: usize = 32;

impl<R: AsyncRead + Unpin> Ahead<R> {
    /// None is read yet.
    pub(super) fn new(lines: Lines<R>) -> Self {
        Self { lines, waiting: VecDeque::new(), size: 0 }
    }

    /// The next line. Cancel safe.
    pub(super) async fn next(&mut self) -> Line {
        match self.waiting.pop_front() {
            Some(line) => {
                self.size = self.size.saturating_sub(size(&line));
                line
            }
            None => self.lines.next().await,
        }
    }

    /// Resolves when the end of the input was seen; never if that is too far off. Cancel safe.
    pub(super) async fn ended(&mut self) {
        while self.size < MOST {
            let line = self.lines.next().await;
            if line == Line::End {
                return;
            }
            self.size += size(&line);
            self.waiting.push_back(line);
        }
        std::future::pending::<()>().await;
    }
}

fn size(line: &Line) -> usize {
    EACH + match line {
        Line::Whole(bytes) | Line::Rest(bytes) => bytes.len(),
        Line::Growing | Line::TooLong(_) | Line::End => 0,
    }
}
