//! Owners who were refused, and told when to come again. Whoever asks again and again meanwhile would take what they wait
//! for the moment it is there; so until they are late, it is kept for them.

use tokio::time::Instant;

/// Those who are not late, one place each.
#[derive(Debug, Default)]
pub(super) struct Told(Vec<Turn>);

/// Who is told, or asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) owner: u64,
    /// When what it has had counts no more; `None` if nothing does. Who has had less comes first.
    pub(super) rested_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    asker: Asker,
    /// From then on it is late.
    until: Instant,
}

/// So many are told at the same time; of others nothing is known.
const MOST: usize = 64;

impl Told {
    /// How many come before this owner: all who were told before, but if it was not told itself not those behind the last
    /// who has had as little. `had` says how much counts until a time.
    pub(super) fn ahead(&self, asker: &Asker, now: Instant, had: impl Fn(Option<Instant>) -> u64) -> u32 {
        let before = self.0.get(..self.place(asker, now, had)).unwrap_or_default();
        let others = before.iter().filter(|turn| turn.until > now);
        u32::try_from(others.count()).unwrap_or(u32::MAX)
    }

    /// This owner was told to come, and is late at `until`. It keeps the place that it has.
    pub(super) fn tell(&mut self, asker: Asker, until: Instant, now: Instant, had: impl Fn(Option<Instant>) -> u64) {
        self.0.retain(|turn| turn.until > now);
        let place = self.place(&asker, now, had);
        let known = self.0.get_mut(place).filter(|turn| turn.asker.owner == asker.owner);
        if let Some(turn) = known {
            *turn = Turn { asker, until };
        } else if self.0.len() < MOST {
            self.0.insert(place, Turn { asker, until });
        }
    }

    /// This owner has what it came for.
    pub(super) fn served(&mut self, owner: u64) {
        self.0.retain(|turn| turn.asker.owner != owner);
    }

    /// Whether there is nobody who is not late.
    pub(super) fn is_empty(&self, now: Instant) -> bool {
        self.0.iter().all(|turn| turn.until <= now)
    }

    /// Its place, or where it would be if it has none or is late.
    fn place(&self, asker: &Asker, now: Instant, had: impl Fn(Option<Instant>) -> u64) -> usize {
        if let Some(known) = self.0.iter().position(|turn| turn.asker.owner == asker.owner && turn.until > now) {
            return known;
        }
        let own = had(asker.rested_at);
        self.0.iter().rposition(|turn| had(turn.asker.rested_at) <= own).map_or(0, |last| last + 1)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const fn asker(owner: u64) -> Asker {
        Asker { owner, rested_at: None }
    }

    #[test]
    fn who_asked_before_comes_first_until_it_is_late_or_served() {
        let (mut told, now) = (Told::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        let ahead = |told: &Told, owner, now| told.ahead(&asker(owner), now, |_| 0);
        for (owner, late) in [(1, 10), (2, 20), (3, 5)] {
            told.tell(asker(owner), at(late), now, |_| 0);
        }
        assert_eq!([1, 2, 3, 4].map(|owner| ahead(&told, owner, now)), [0, 1, 2, 3]);
        // Who asks again keeps its place.
        told.tell(asker(1), at(11), now, |_| 0);
        assert_eq!([1, 2].map(|owner| ahead(&told, owner, at(10))), [0, 1]);
        assert_eq!([1, 4].map(|owner| ahead(&told, owner, at(11))), [1, 1]);
        told.served(2);
        assert_eq!([3, 4].map(|owner| ahead(&told, owner, now)), [1, 2]);
        assert!(!told.is_empty(at(10)) && told.is_empty(at(11)));
        // Who was late asks anew.
        told.tell(asker(2), at(30), at(5), |_| 0);
        told.tell(asker(3), at(30), at(5), |_| 0);
        assert_eq!(ahead(&told, 3, at(5)), 2);
    }

    #[test]
    fn who_has_had_less_comes_first_until_that_counts_no_more() {
        let (mut told, now) = (Told::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        let had_at =
            |now| move |until: Option<Instant>| until.map_or(0, |until| until.saturating_duration_since(now).as_secs());
        let greedy = Asker { owner: 1, rested_at: Some(at(5)) };
        told.tell(greedy, at(100), now, had_at(now));
        told.tell(asker(2), at(100), now, had_at(now));
        let ahead = |told: &Told, asker: Asker, now| told.ahead(&asker, now, had_at(now));
        assert_eq!([greedy, asker(2), asker(3)].map(|asker| ahead(&told, asker, now)), [1, 0, 1]);
        let later = at(5);
        assert_eq!([greedy, asker(2), asker(3)].map(|asker| ahead(&told, asker, later)), [1, 0, 2]);
    }

    #[test]
    fn no_more_are_known_than_there_is_room_for() {
        let (mut told, now) = (Told::default(), Instant::now());
        let until = now + Duration::from_secs(1);
        for owner in 0..1000 {
            told.tell(asker(owner), until, now, |_| 0);
        }
        assert_eq!(told.ahead(&asker(2000), now, |_| 0) as usize, MOST);
        told.tell(asker(2000), until + Duration::from_secs(1), until, |_| 0);
        assert_eq!(told.0.len(), 1);
    }
}
