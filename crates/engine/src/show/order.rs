//! The order in which people read the agents of a run.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::id::AgentId;
use crate::run_state::{AgentStatus, RunState};

/// Returns the agents of a run in reading order: by task in the order of the plan, each followed by
/// its children, with `reader-2` before `reader-10`.
#[must_use]
pub fn agents_in_order(state: &RunState) -> Vec<(&AgentId, &AgentStatus)> {
    let mut below: HashMap<Option<&AgentId>, Vec<(&AgentId, &AgentStatus)>> = HashMap::new();
    for (id, agent) in state.agents() {
        below.entry(agent.parent.as_ref()).or_default().push((id, agent));
    }
    let places: HashMap<_, _> =
        state.tasks().enumerate().map(|(at, (name, _))| (name, at)).collect();
    for siblings in below.values_mut() {
        siblings.sort_by(|(a, of_a), (b, of_b)| {
            let place = |agent: &AgentStatus| places.get(&agent.task);
            place(of_a).cmp(&place(of_b)).then_with(|| natural(a.as_str(), b.as_str()))
        });
    }
    let mut ordered = Vec::with_capacity(state.agents().len());
    // The next agent is the last one in the list. No recursion, so that a tree of any depth fits.
    let mut open = below.remove(&None).unwrap_or_default();
    open.reverse();
    while let Some((id, agent)) = open.pop() {
        ordered.push((id, agent));
        open.extend(below.remove(&Some(id)).into_iter().flatten().rev());
    }
    ordered
}

/// Compares names so that numbers in them count as numbers.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    while let (Some(first), Some(second)) = (a.first(), b.first()) {
        let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let order = if first.is_ascii_digit() && second.is_ascii_digit() {
            let ((one, rest_a), (other, rest_b)) = (a.split_at(digits(a)), b.split_at(digits(b)));
            (a, b) = (rest_a, rest_b);
            let (one, other) = (without_zeros(one), without_zeros(other));
            one.len().cmp(&other.len()).then_with(|| one.cmp(other))
        } else {
            (a, b) = (&a[1..], &b[1..]);
            first.cmp(second)
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

fn without_zeros(digits: &[u8]) -> &[u8] {
    &digits[digits.iter().take_while(|byte| **byte == b'0').count()..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let mut names =
            ["r-10", "r-2", "r", "r-2/x-11", "r-2/x-9", "r-02b", "s~2", "r[10]", "r[9]"];
        names.sort_by(|a, b| natural(a, b));
        let wanted = ["r", "r-2", "r-2/x-9", "r-2/x-11", "r-02b", "r-10", "r[9]", "r[10]", "s~2"];
        assert_eq!(names, wanted);
    }
}
