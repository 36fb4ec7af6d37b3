//! Tests of the embedded engine (ENG-2): its files, its threads and its flushes. They have no meaning on another one,
//! so the run on another one leaves this module out by its name, and nothing else.

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
