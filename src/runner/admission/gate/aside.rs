//! Slots that are not needed for now, or are another owner's from now on.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use super::{Claim, Entry, Failure, Gate, Guest, Permits, Principal, State};

impl Gate {
    /// Whether nobody may wait for a slot.
    pub(in crate::runner) fn has_no_line(&self) -> bool {
        self.state().most_waiting == 0
    }

    /// Gives the slots of a call back that waits for its server, if one more may wait.
    fn set_aside(self: &Arc<Self>, claim: &Claim, guest: &Guest<'_>) -> Result<(), Failure> {
        let mut state = self.state();
        state.check_line(claim, guest, false)?;
        state.served(claim);
        state.slots.release(claim);
        state.count_aside(claim, 1);
        self.hand_on(state);
        Ok(())
    }

    /// Slots for a call that waited for its server, or a place in the line.
    fn come_back(self: &Arc<Self>, claim: Claim) -> Entry {
        let mut state = self.state();
        state.count_aside(&claim, -1);
        self.take_or_wait(state, Claim { is_aside: false, ..claim })
    }

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
        if claim.is_aside {
            state.count_aside(claim, -1);
            state.count_aside(&new, 1);
        } else {
            slots.release(claim);
            slots.take(&new);
        }
        // The others that it was counted with have more room now.
        self.hand_on(state);
        new
    }
}

impl State {
    /// Counts one more who waits for its server, or one less.
    pub(super) fn count_aside(&mut self, claim: &Claim, change: isize) {
        self.aside = self.aside.saturating_add_signed(change);
        if let Some(part) = claim.part.and_then(|place| self.slots.parts.get_mut(place)) {
            part.aside = part.aside.saturating_add_signed(change);
        }
        self.count(claim, change);
    }
}

impl Permits {
    /// Whether they are counted as those of all newcomers at an address.
    pub(in crate::runner) fn of_newcomers(&self) -> bool {
        self.0.as_ref().is_some_and(|(_, claim)| claim.of_newcomers)
    }

    /// Gives them back for now, since the call waits for its server; `guest` is who has them. Refused where no more may
    /// wait: then they are kept.
    pub(in crate::runner::admission) fn set_aside(&mut self, guest: &Guest<'_>) -> Result<(), Failure> {
        if let Some((gate, claim)) = self.0.as_mut().filter(|(_, claim)| !claim.is_aside) {
            gate.set_aside(claim, guest)?;
            claim.is_aside = true;
        }
        Ok(())
    }

    /// They are needed again.
    pub(in crate::runner) fn come_back(mut self) -> Entry {
        match self.0.take() {
            Some((gate, claim)) if claim.is_aside => gate.come_back(claim),
            kept => Entry::Free(Self(kept)),
        }
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
