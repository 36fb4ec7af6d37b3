//! The number of kept claims levels off (CLM-19).

use snavio_model::bounds;

use super::Backend;
use super::samples::{KEEP_SECONDS, at, intake, pay, queued, settle, settle_one};
use super::sweep::sweep;

/// CLM-19: twenty minutes of steady traffic in virtual time. The test counts the rows.
pub async fn claims_level_off_under_steady_traffic(backend: &dyn Backend) {
    const STEP_SECONDS: i64 = 10;
    const PER_STEP: usize = 40;
    let store = backend.open().await;
    // Some backends keep a claim a little longer than it is valid.
    let keep = KEEP_SECONDS as usize + bounds::CLAIM_KEEP_SLACK.as_secs() as usize;
    let most = PER_STEP * (keep / STEP_SECONDS as usize + 1);
    let mut rows = Vec::new();
    for now in (0..20 * 60).step_by(STEP_SECONDS as usize) {
        let batch = (0..PER_STEP).map(|n| intake(&format!("{now}-{n}"), &pay(), at(now))).collect();
        let settled = settle(&*store, batch, at(now)).await;
        assert!(settled.iter().all(|settlement| queued(settlement.outcomes[0]).is_some()));
        sweep(&*store, now).await;
        rows.push(backend.claim_rows());
    }
    let of_one = backend.rows_of_a_claim();
    assert_eq!(rows[0], PER_STEP * of_one, "each claim is counted");
    let level = &rows[rows.len() / 2..];
    assert!(level.iter().all(|rows| *rows <= most * of_one && *rows == level[0]), "{rows:?}");
    let live = settle_one(&*store, "1190-0", &pay(), at(1199)).await;
    assert!(queued(live).is_none(), "a live claim stays");
    sweep(&*store, 3600).await;
    assert_eq!(backend.claim_rows(), 0);
    store.close().await;
}
