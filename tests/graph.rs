//! The plan as it runs: order, joins, fan-outs, sub-graphs, values, checks of answers, questions to people, hooks.

mod answers;
mod fan_outs;
mod gates;
mod hooks;
mod left_undone;
mod live_lines;
mod notices;
mod streams;
mod sub_graphs;
mod tasks;
mod values;
mod ways_to_end;
