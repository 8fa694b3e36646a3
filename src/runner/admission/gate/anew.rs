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
        let new = Claim { who, owner, part, of_newcomers: false, ..*claim };
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
