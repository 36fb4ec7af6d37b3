//! Reading through all of a table, which takes as long as the table is: for each tenant once at a time, and for several
//! of them by turns, so that nobody waits for another's whole reading and there are readers left for everybody else.

use std::collections::HashSet;
use std::sync::Mutex;

use tokio::sync::MutexGuard;

use super::writer::lock;
use crate::StoreError;

/// Who reads through.
#[derive(Default)]
pub(super) struct Through {
    /// Taken for some rows, and asked for again: it is given in the order of asking.
    turn: tokio::sync::Mutex<()>,
    tenants: Mutex<HashSet<String>>,
}

/// One tenant's reading, until it is dropped.
pub(super) struct Reading<'t> {
    of: &'t Through,
    tenant: String,
}

impl Through {
    /// Begins a reading for a tenant that has none under way.
    pub(super) fn begin(&self, tenant: &str) -> Result<Reading<'_>, StoreError> {
        if !lock(&self.tenants).insert(tenant.to_owned()) {
            let why = "all claims are being looked through for this tenant already, which is done for one request at a time";
            return Err(StoreError::Overloaded(why));
        }
        Ok(Reading { of: self, tenant: tenant.to_owned() })
    }
}

impl<'t> Reading<'t> {
    /// Waits until some more may be read.
    pub(super) async fn turn(&self) -> MutexGuard<'t, ()> {
        self.of.turn.lock().await
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        lock(&self.of.tenants).remove(&self.tenant);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// PIP-9, CLM-18
    #[tokio::test]
    async fn a_tenant_reads_through_once_at_a_time_and_tenants_by_turns() {
        let through = Through::default();
        let acme = through.begin("acme").unwrap();
        assert!(matches!(through.begin("acme"), Err(StoreError::Overloaded(_))));
        let zeta = through.begin("zeta").unwrap();
        let some = acme.turn().await;
        let mut next = Box::pin(zeta.turn());
        assert!((&mut next).now_or_never().is_none(), "one of them at a time");
        drop(some);
        assert!(acme.turn().now_or_never().is_none(), "the other has waited");
        assert!((&mut next).now_or_never().is_some());
        drop(acme);
        assert!(through.begin("acme").is_ok(), "whoever hangs up ends it");
    }
}
