//! Digests of large arguments, which take a while: they are made apart from the threads that serve connections, so that
//! nobody else waits for them there.

use tokio::task::spawn_blocking;

use crate::protocol::Principal;
use crate::share::Places;

/// From this many bytes of parameters on a call is large.
pub(in crate::runner) const LARGE: usize = 64 * 1024;

/// As many are made at a time in the whole process, of which no owner takes all while there are others: the other cores are
/// for those who serve.
const AT_ONCE: usize = 2;

/// Where they are made. Clones share the places.
#[derive(Clone, Debug)]
pub(in crate::runner) struct Digests(Places);

impl Default for Digests {
    fn default() -> Self {
        Self(Places::new(AT_ONCE))
    }
}

impl Digests {
    /// What `work` makes for this owner, when it has a place; `None` if it panicked. Dropped before that, it is never begun;
    /// later it keeps its place to its end.
    pub(super) async fn of<T: Send + 'static>(
        &self,
        principal: &Principal,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let place = self.0.wait(principal).await;
        let work = move || {
            let made = work();
            drop(place);
            made
        };
        spawn_blocking(work).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::time::timeout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn two_are_made_at_a_time_beside_the_thread_that_asks_and_who_leaves_is_not_waited_for() {
        let (digests, (begun, mut begins)) = (Digests::default(), unbounded_channel());
        let work = |number: usize| {
            let ((go, gate), begun) = (mpsc::channel::<()>(), begun.clone());
            let made = digests.of(&Principal::Local, move || {
                begun.send(number).unwrap();
                let _ = gate.recv_timeout(PATIENCE);
                number
            });
            (go, Box::pin(made))
        };
        let ((first_go, mut first), (_second_go, mut second)) = (work(1), work(2));
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        let mut both = [begins.recv().await.unwrap(), begins.recv().await.unwrap()];
        both.sort_unstable();
        assert_eq!(both, [1, 2]);
        // Two more wait, and the first of them leaves.
        let ((_, mut third), (fourth_go, mut fourth)) = (work(3), work(4));
        assert!((&mut third).now_or_never().is_none() && (&mut fourth).now_or_never().is_none());
        drop(third);
        // One that has begun keeps its place although its caller has left.
        drop(second);
        assert!((&mut fourth).now_or_never().is_none());
        assert!(begins.try_recv().is_err(), "a third was begun");
        first_go.send(()).unwrap();
        assert_eq!(timeout(PATIENCE, first).await.unwrap(), Some(1));
        fourth_go.send(()).unwrap();
        assert_eq!(timeout(PATIENCE, fourth).await.unwrap(), Some(4));
        assert_eq!(begins.recv().await, Some(4));
    }

    #[tokio::test]
    async fn one_owner_leaves_a_place_to_another() {
        let digests = Digests::default();
        let [ann, bo] = ["ann", "bo"].map(|name| Principal::Named(name.into()));
        let (go, gate) = mpsc::channel::<()>();
        let mut first = Box::pin(digests.of(&ann, move || gate.recv_timeout(PATIENCE).is_ok()));
        assert!((&mut first).now_or_never().is_none());
        let mut second = Box::pin(digests.of(&ann, || true));
        assert!((&mut second).now_or_never().is_none());
        assert_eq!(timeout(PATIENCE, digests.of(&bo, || true)).await.unwrap(), Some(true));
        assert!((&mut second).now_or_never().is_none(), "ann has one place already");
        go.send(()).unwrap();
        assert_eq!(timeout(PATIENCE, first).await.unwrap(), Some(true));
        assert_eq!(timeout(PATIENCE, second).await.unwrap(), Some(true));
    }
}
