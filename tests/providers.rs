//! Models behind sockets: the three protocols, faults, limits, quotas, fallbacks.

mod connect;
mod fallbacks;
mod fault_table;
mod gateway;
mod live_smoke;
mod media;
mod odd_servers;
mod quota;
mod reasoning;
mod responses;
mod shared_limit;
mod structured;
pub(crate) mod wire;
