//! The program as it is used: the real binary in temporary workspaces, without network.

mod context;
mod crash;
mod desk;
mod exits;
mod explain;
mod failures;
mod first_hour;
mod full;
mod hostile_config;
mod hostile_server;
mod hostile_terminal;
mod judge;
mod mistakes;
mod resume;
mod retry;
mod sandbox;
mod secrets;
mod stop;
mod stored;
mod survey;
mod terminal;
mod trust;
mod truth;
mod verbs;
mod watch;
