//! The chain from a subject to the root of its wait, failure or end.

use ahash::{HashMap, HashMapExt};

use super::{Link, Subject, Why};

/// A chain of links, from the subject to the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// The links in their order.
    pub steps: Vec<Step>,
    /// The place of the step to whose subject the last one leads back; `None` if the chain has a root.
    pub cycle: Option<usize>,
}

/// One link of a chain with the other causes of the same subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The cause that binds.
    pub link: Link,
    /// The others.
    pub others: Vec<Link>,
}

impl Chain {
    /// Returns the last link: what everything before it waits for.
    #[must_use]
    pub fn root(&self) -> Option<&Link> {
        self.steps.last().map(|step| &step.link)
    }
}

impl Why<'_> {
    /// Returns the chain of a subject: empty if it completed, waits for nothing, or does not exist. A run with a cycle
    /// of waits gives the cycle once.
    #[must_use]
    pub fn chain(&self, subject: &Subject) -> Chain {
        let mut chain = Chain::default();
        let mut seen: HashMap<Subject, usize> = HashMap::new();
        let mut next = Some(subject.clone());
        while let Some(subject) = next {
            if let Some(place) = seen.get(&subject) {
                chain.cycle = Some(*place);
                break;
            }
            let mut causes = self.causes(&subject).into_iter();
            let Some(link) = causes.next() else { break };
            seen.insert(subject, chain.steps.len());
            // The causes of a task at work are those of its agent.
            seen.entry(link.subject.clone()).or_insert(chain.steps.len());
            next = link.relation.object();
            chain.steps.push(Step { link, others: causes.collect() });
        }
        chain
    }
}
