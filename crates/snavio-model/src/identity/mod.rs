//! Who a caller is: assertions, tokens, and permissions of people.

pub mod assertion;
pub mod permission;
pub mod token;
