//! Declares the keys of `[loops]`, for the run and for single agents.

use crate::config::shape::kinds::words_of;
use crate::config::shape::{Kind, List, sections, words};
use crate::spec::loops::OnLoop;

/// A number of calls, rounds or turns.
const TIMES: Kind = Kind::Whole(1, 10_000, "");

/// A number of equal things: one alone is no loop.
const SEVERAL: Kind = Kind::Whole(2, 10_000, "");

words! { OnLoop }

sections! {
    /// The rules by which it is noticed that an agent goes in circles: it makes the same calls with the same
    /// results, without anything new in between. docs/loops.md has them.
    LoopKeys {
        /// If `false`, nothing is looked for, as with `on_loop = "off"`.
        enabled: bool, Kind::Truth => "true", gives "loops_off";
        /// What is done. `steps`: the agent is told, then gets a turn without tools, then hands over and fails with
        /// `no_progress`. `nudge`: it is told. `off`: nothing.
        on_loop: OnLoop, words_of::<OnLoop>(&[]) => "`steps`", gives "loops_off";
        /// The number of the latest calls that are looked at.
        window: usize, Kind::Whole(10, 1_000, "calls") => "64";
        /// How many equal calls with equal results lead to each of the three steps, ascending.
        repeat: List<u32>, Kind::List(&SEVERAL) => "[4, 5, 7]", gives "bad_value";
        /// The rounds of one cycle of two to six calls that are noticed.
        cycle: u32, SEVERAL => "3";
        /// How often a file is changed back to an earlier content before it is noticed.
        edits: u32, TIMES => "3";
        /// The turns without anything new that are noticed.
        stall: u32, SEVERAL => "12";
        /// The equal delegations with equal outcomes before one more is noticed.
        spawn: u32, TIMES => "2";
        /// The rounds in which an answer fails in the same way that are noticed.
        rounds: u32, SEVERAL => "3";
        /// If `true`, an answer that repeats one text over and over is cut.
        text: bool, Kind::Truth => "true";
    }
}
