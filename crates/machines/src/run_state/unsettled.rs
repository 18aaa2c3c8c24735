//! Requests to models whose end no record tells, and what spending adds to the agents above.

use super::RunState;
use crate::id::AgentId;
use crate::spending::Spending;

impl RunState {
    /// Counts the requests under way as lost unless a process drives the run, for readers: whoever made them is gone.
    /// The next process does so with its first record.
    pub fn lose_requests_unless(&mut self, is_live: bool) {
        if !is_live {
            self.lose_requests();
        }
    }

    pub(super) fn lose_requests(&mut self) {
        let origin = self.created().and_then(|created| created.forked);
        if origin.is_some_and(|origin| origin.seq == self.last_seq) {
            // They are under way in the run from which this one was forked, and stand in its bill.
            return self.forget_requests();
        }
        let lost = |(id, agent): (&AgentId, &mut super::AgentStatus)| {
            agent.lose_request().map(|spending| (id.clone(), spending))
        };
        let lost: Vec<_> = self.agents.iter_mut().filter_map(lost).collect();
        for (id, spending) in lost {
            self.spent_by(&id, Some(spending));
        }
    }

    fn forget_requests(&mut self) {
        let forgets = |(id, agent): (&AgentId, &mut super::AgentStatus)| {
            agent.forget_request().then(|| id.clone())
        };
        let forgotten: Vec<_> = self.agents.iter_mut().filter_map(forgets).collect();
        for id in forgotten {
            self.spending.requests = self.spending.requests.saturating_sub(1);
            self.for_each_ancestor(&id, |agent| {
                agent.inclusive.requests = agent.inclusive.requests.saturating_sub(1);
            });
        }
    }

    /// Adds what an agent has spent to the sums of the run and of the agents above it.
    pub(super) fn spent_by(&mut self, id: &AgentId, spending: Option<Spending>) {
        let Some(spending) = spending else { return };
        self.spending += spending;
        self.for_each_ancestor(id, |agent| agent.inclusive += spending);
    }
}
