//! Tests of PostgreSQL under a node (ENG-3) and of several nodes over one database (ENG-7). They bring their
//! own databases on either engine under test, so a run on PostgreSQL skips this module by its name.

mod doctor;
mod fleet;
mod giving_up;
mod layout;
mod log;
mod platform_key;
mod promise;
mod push;
mod restore;
mod revocations;
mod snapshots;
mod tenant_config;
