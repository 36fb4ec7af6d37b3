//! Tests of the embedded engine (ENG-2): its files, threads and flushes. They do not apply to another engine,
//! so a run on another engine skips exactly this module by its name.

mod backup;
mod bench;
pub(crate) mod crash;
mod doctor;
mod durability;
mod faults;
mod flush_order;
mod log_damage;
mod move_store;
mod push;
mod retention;
mod shown;
