//! What only the gate itself can see.

use futures_util::FutureExt as _;

use super::super::tests::{Of, gate};

#[test]
fn slots_for_one_who_has_just_left_go_to_the_next_and_none_is_lost() {
    let (gate, of) = (gate(1, 10), Of::default());
    let running = of.free(&gate, "ann", "t");
    let (mut gone, mut next) = (of.wait(&gate, "ann", "t"), of.wait(&gate, "ann", "t"));
    // It was taken from the line, and takes nothing any more.
    gone.slots.close();
    drop(running);
    let running = (&mut next).now_or_never().expect("the slot was lost");
    drop((gone, running));
    assert_eq!((gate.running(), gate.waiting()), (0, 0));
    drop(of.free(&gate, "ann", "t"));
}
