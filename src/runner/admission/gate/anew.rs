//! Slots that are another owner's from now on.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use super::{Claim, Gate, Permits, Principal};

impl Gate {
    /// Counts slots as those of another owner, who may have more than its share then.
    fn count_anew(self: &Arc<Self>, claim: &Claim, principal: &Principal) -> Claim {
        let who = self.keys.hash_one(principal);
        let mut state = self.state();
        let slots = &mut state.slots;
        let (owner, part) = (slots.owners.place(who), self.keys.hash_one((who, claim.what)));
        let part = claim.tool.map(|_| slots.parts.place(part));
        // Who was refused again in this moment is one of the newcomers still.
        let of_newcomers = matches!(principal, Principal::Newcomers(_));
        let new = Claim { who, owner, part, of_newcomers, ..*claim };
        slots.release(claim);
        slots.take(&new);
        // The others that it was counted with have more room now.
        self.hand_on(state);
        new
    }
}

impl Permits {
    /// Whether they are counted as those of all newcomers at an address.
    pub(in crate::runner) fn of_newcomers(&self) -> bool {
        self.0.as_ref().is_some_and(|(_, claim)| claim.of_newcomers)
    }

    /// From now on they count for this owner.
    pub(in crate::runner::admission) fn count_for(&mut self, principal: &Principal) {
        if let Some((gate, claim)) = &mut self.0 {
            *claim = gate.count_anew(claim, principal);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::super::tests::gate;
    use super::super::{Entry, Guest};
    use super::*;

    #[test]
    fn who_was_refused_again_before_it_counted_for_itself_is_a_newcomer_until_it_does() {
        let newcomers = Principal::Newcomers(IpAddr::from([10, 0, 0, 1]));
        let Ok(Entry::Free(mut permits)) = gate(4, 4).enter(&Guest { principal: &newcomers, tool: None }) else {
            panic!("no slot was free");
        };
        permits.count_for(&newcomers);
        assert!(permits.of_newcomers(), "it would never have its own share");
        permits.count_for(&Principal::Named("ann".into()));
        assert!(!permits.of_newcomers());
    }
}
