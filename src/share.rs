//! What owners share, and what none may take alone: of any number of places the last eighth, and at least one of two or
//! more, is for owners who have fewer than are left. Whoever is the only user of this machine has nobody to leave any to.

pub(crate) mod line;
mod places;

use crate::protocol::Principal;

pub use places::{NoPlace, Place, Places};

/// Whether there are others to leave something to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Company {
    /// Nobody was seen but the one user of this machine. To `Others` with the first call of somebody else, for good.
    #[default]
    Alone,
    /// There are owners who may come again.
    Others,
}

/// The part of all places that is kept: one in so many.
const KEPT_PART: usize = 8;

impl Company {
    /// Somebody comes.
    pub const fn meet(&mut self, principal: &Principal) {
        if !matches!(principal, Principal::Local) {
            *self = Self::Others;
        }
    }

    /// How many of `most` places are for owners who have fewer than are left.
    pub const fn kept_of(self, most: usize) -> usize {
        match (self, most) {
            (Self::Alone, _) | (Self::Others, 0 | 1) => 0,
            (Self::Others, 2..KEPT_PART) => 1,
            (Self::Others, _) => most / KEPT_PART,
        }
    }

    /// Whether an owner who has `own` of `most` places may take one of the `left`.
    pub const fn may_take(self, most: usize, left: usize, own: usize) -> bool {
        left > 0 && (left > self.kept_of(most) || own < left)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// How many one owner gets who is the first to come.
    fn taken(company: Company, most: usize) -> usize {
        (0..most).take_while(|own| company.may_take(most, most - own, *own)).count()
    }

    #[test]
    fn one_owner_takes_all_but_an_eighth_and_the_one_user_of_a_machine_takes_all() {
        for (most, of_many) in [(0, 0), (1, 1), (2, 1), (3, 2), (4, 3), (7, 6), (8, 7), (15, 14), (16, 14), (1024, 896)]
        {
            assert_eq!(taken(Company::Others, most), of_many, "of {most}");
            assert_eq!(taken(Company::Alone, most), most);
        }
    }

    #[test]
    fn others_are_there_for_good_once_one_was_seen() {
        let mut company = Company::default();
        company.meet(&Principal::Local);
        assert_eq!(company, Company::Alone);
        for principal in [Principal::Anonymous, Principal::Local] {
            company.meet(&principal);
            assert_eq!(company, Company::Others);
        }
    }

    proptest! {
        #[test]
        fn whoever_has_nothing_finds_a_place_after_any_other(most in 2..2000_usize, greedy in 1..4000_usize) {
            let own = taken(Company::Others, most).min(greedy);
            prop_assert!(Company::Others.may_take(most, most - own, 0));
        }
    }
}
