//! Timers for what hardly ever takes so long.
//!
//! A timer of tokio that is set while the runtime waits for input wakes it up, which costs a short call more than the
//! rest of it. These are set only for who still waits after a while.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::task::coop::{Unconstrained, unconstrained};
use tokio::time::{Instant, Sleep, sleep_until};

/// Timers that share one of tokio's for the first while. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Alarms(Arc<Mutex<Line>>);

/// Resolves at its moment.
pub struct Alarm {
    until: Instant,
    stage: Stage,
}

enum Stage {
    /// Not polled yet.
    New(Option<Alarms>),
    /// To be set if somebody still waits when it is woken.
    Put(Arc<Entry>),
    /// Not bound by what a task may do at a time (tokio, cooperative scheduling): where a flood of events takes all of
    /// that, a limit still goes off.
    Set(Pin<Box<Unconstrained<Sleep>>>),
}

#[derive(Debug, Default)]
struct Line {
    /// In the order of their time. Most are not waited for any more.
    entries: VecDeque<(Instant, Arc<Entry>)>,
    /// Whether somebody sees to them.
    is_seen_to: bool,
}

/// One for all alarms that a task puts off in the same moment.
#[derive(Debug)]
struct Entry {
    is_due: AtomicBool,
    /// Wakes the task that put the alarms off.
    waker: Waker,
}

/// How long an alarm is put off before it is set.
const WHILE: Duration = Duration::from_millis(80);
/// How often those that were put off are looked at.
const LOOK: Duration = Duration::from_millis(40);
/// Alarms that are put off within this time of another of the same task share its entry.
const MOMENT: Duration = Duration::from_millis(1);
/// Among how many of the last entries another of the same task is looked for: a few tasks run at the same time.
const LAST: usize = 4;

impl Alarms {
    /// Puts an alarm of the task with this waker off. Also whether nobody sees to those that were put off.
    fn put(&self, now: Instant, waker: &Waker) -> (Arc<Entry>, bool) {
        let at = now + WHILE;
        let mut line = self.line();
        let mut last = line.entries.iter().rev().take(LAST).take_while(|(due, _)| at.duration_since(*due) < MOMENT);
        if let Some((_, entry)) = last.find(|(_, entry)| entry.waker.will_wake(waker)) {
            return (Arc::clone(entry), false);
        }
        let entry = Arc::new(Entry { is_due: AtomicBool::new(false), waker: waker.clone() });
        line.entries.push_back((at, Arc::clone(&entry)));
        let first = !std::mem::replace(&mut line.is_seen_to, true);
        (entry, first)
    }

    /// Wakes those that have waited for a while, until there are no more.
    async fn see_to(self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let due = {
                let mut line = self.line();
                if line.entries.is_empty() {
                    line.is_seen_to = false;
                    return;
                }
                let now = Instant::now();
                let count = line.entries.partition_point(|(at, _)| *at <= now);
                line.entries.drain(..count).collect::<Vec<_>>()
            };
            for (_, mut entry) in due {
                entry.is_due.store(true, Ordering::Release);
                // A task that waits for none of its alarms any more would be woken for nothing.
                if Arc::get_mut(&mut entry).is_none() {
                    entry.waker.wake_by_ref();
                }
            }
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        // Nothing in here panics with the lock held, so a poisoned line is still in order.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Alarm {
    /// An alarm for `until`; put off first if there are `alarms` to do that.
    pub(super) fn new(until: Instant, alarms: Option<Alarms>) -> Self {
        Self { until, stage: Stage::New(alarms) }
    }
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let this = &mut *self;
            match &mut this.stage {
                Stage::New(alarms) => {
                    let now = Instant::now();
                    match alarms.take() {
                        Some(alarms) if this.until > now + WHILE + LOOK => {
                            let (entry, first) = alarms.put(now, context.waker());
                            if first {
                                tokio::spawn(alarms.see_to());
                            }
                            this.stage = Stage::Put(entry);
                        }
                        _ => this.stage = Stage::Set(Box::pin(unconstrained(sleep_until(this.until)))),
                    }
                }
                Stage::Put(entry) => {
                    let will_be_woken = entry.waker.will_wake(context.waker());
                    if will_be_woken && !entry.is_due.load(Ordering::Acquire) {
                        return Poll::Pending;
                    }
                    // A task that it has moved to would not be woken; what moves is slow in any case.
                    this.stage = Stage::Set(Box::pin(unconstrained(sleep_until(this.until))));
                }
                Stage::Set(sleep) => {
                    ready!(sleep.as_mut().poll(context));
                    return Poll::Ready(());
                }
            }
        }
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarm").field("until", &self.until).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task that tells whether it was woken.
    struct Task(Arc<AtomicBool>, Waker);

    struct Flag(Arc<AtomicBool>);

    impl std::task::Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    impl Task {
        fn new() -> Self {
            let woken = Arc::new(AtomicBool::new(false));
            Self(Arc::clone(&woken), Arc::new(Flag(woken)).into())
        }

        fn polls<F: Future + Unpin>(&self, future: &mut F) -> Poll<F::Output> {
            Pin::new(future).poll(&mut Context::from_waker(&self.1))
        }

        fn is_woken(&self) -> bool {
            self.0.load(Ordering::SeqCst)
        }
    }

    async fn takes(span: Duration) -> Duration {
        let begun = Instant::now();
        let alarms = Alarms::default();
        Alarm::new(begun + span, Some(alarms.clone())).await;
        assert!(alarms.line().entries.is_empty());
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn an_alarm_goes_off_at_its_moment_however_far_that_is() {
        for millis in [0, 1, 79, 80, 81, 120, 121, 150, 10_000] {
            let span = Duration::from_millis(millis);
            assert_eq!(takes(span).await, span);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_task_puts_off_in_one_moment_is_one_entry_and_each_alarm_goes_off() {
        let alarms = Alarms::default();
        let begun = Instant::now();
        let one = |millis| Alarm::new(begun + Duration::from_millis(millis), Some(alarms.clone()));
        let mut all = futures_util::future::join3(one(200), one(300), one(400));
        let (task, other) = (Task::new(), Task::new());
        assert!(task.polls(&mut all).is_pending());
        assert_eq!(alarms.line().entries.len(), 1);
        let mut of_other = one(200);
        assert!(other.polls(&mut of_other).is_pending());
        assert_eq!(alarms.line().entries.len(), 2);
        tokio::time::sleep(WHILE + LOOK).await;
        assert!(task.is_woken() && other.is_woken());
        all.await;
        assert_eq!(begun.elapsed(), Duration::from_millis(400));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_is_not_woken_for_alarms_that_it_has_dropped() {
        let alarms = Alarms::default();
        let far = Instant::now() + Duration::from_hours(1);
        let (task, other) = (Task::new(), Task::new());
        let mut alarm = Alarm::new(far, Some(alarms.clone()));
        assert!(task.polls(&mut alarm).is_pending());
        drop(alarm);
        let mut waits = Alarm::new(far, Some(alarms.clone()));
        assert!(other.polls(&mut waits).is_pending());
        tokio::time::sleep(WHILE + LOOK).await;
        assert!(other.is_woken() && !task.is_woken());
    }

    #[tokio::test(start_paused = true)]
    async fn an_alarm_that_moves_to_another_task_goes_off_there() {
        let alarms = Alarms::default();
        let begun = Instant::now();
        let mut alarm = Alarm::new(begun + Duration::from_secs(1), Some(alarms.clone()));
        assert!(Task::new().polls(&mut alarm).is_pending());
        alarm.await;
        assert_eq!(begun.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_waits_for_any_more_is_forgotten_and_then_nobody_looks() {
        let alarms = Alarms::default();
        let far = Instant::now() + Duration::from_hours(1);
        for _ in 0..1000 {
            let mut alarm = Alarm::new(far, Some(alarms.clone()));
            assert!(Task::new().polls(&mut alarm).is_pending());
        }
        assert_eq!(alarms.line().entries.len(), 1000);
        tokio::time::sleep(WHILE + 3 * LOOK).await;
        assert!(alarms.line().entries.is_empty() && !alarms.line().is_seen_to);
        let mut alarm = Alarm::new(far, Some(alarms.clone()));
        (&mut alarm).await;
        assert!(Instant::now() >= far);
    }
}
