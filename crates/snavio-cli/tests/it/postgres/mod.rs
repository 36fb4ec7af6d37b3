//! Tests of PostgreSQL under a node (ENG-3) and of several nodes over one database (ENG-7). They bring their own
//! database, whichever engine the run is for, so the run on PostgreSQL leaves this module out by its name.

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
