//! Many nodes over one PostgreSQL: concurrent sends, cut connections, killed nodes, and outages of the
//! database (ENG-7, QUA-1). `TEST_LONG=1` runs the long counts.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod books;
mod cluster;
mod cuts;
mod kills;
mod outage;
mod proxy;
mod races;
mod restarts;
mod work;

/// Whether the long counts were requested.
fn is_long() -> bool {
    std::env::var("TEST_LONG").is_ok_and(|long| long == "1")
}
