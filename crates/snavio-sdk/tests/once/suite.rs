//! The suite for a consumer's claims, for each database.

use snavio_sdk::once::{Once, OnceError};

use crate::consumer::{Consumer, Then, delivery, delivery_from, delivery_of, told};

/// Runs every test of the suite for a consumer.
macro_rules! suite {
    ($consumer:ty) => {
        $crate::suite::suite!($consumer:
            the_second_delivery_runs_nothing_and_is_told_the_result_of_the_first,
            of_fifty_at_once_one_has_the_effect_and_all_are_told_its_result,
            an_effect_that_fails_is_rolled_back_with_its_claim,
            an_effect_that_panics_is_rolled_back_with_its_claim,
            an_effect_that_spoils_its_transaction_is_not_taken_for_done,
            another_service_with_the_id_is_a_conflict_and_another_tenant_or_consumer_is_not,
            the_same_id_with_another_content_is_not_taken_for_done,
            a_result_that_is_too_long_rolls_back,
            claims_are_forgotten_after_their_time_and_not_before,
        );
    };
    ($consumer:ty: $($name:ident),* $(,)?) => {
        $(
            /// CLM-10
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                $crate::suite::$name(<$consumer as $crate::consumer::Consumer>::new().await).await;
            }
        )*
    };
}
pub(crate) use suite;

pub(crate) async fn the_second_delivery_runs_nothing_and_is_told_the_result_of_the_first(
    consumer: impl Consumer,
) {
    let first = consumer.once(delivery("id-1"), Then::leave("posted as 7")).await.unwrap();
    assert_eq!(first, Once::Done(Some("posted as 7".into())));
    let second = consumer.once(delivery("id-1"), Then::Panic).await.unwrap();
    assert_eq!(second, Once::DoneBefore(Some("posted as 7".into())));
    let other = consumer.once(delivery("id-2"), Then::Leave(None)).await.unwrap();
    assert_eq!(other, Once::Done(None));
    assert_eq!(consumer.once(delivery("id-2"), Then::Panic).await.unwrap(), Once::DoneBefore(None));
    assert_eq!(consumer.effects().await, 2);
}

pub(crate) async fn of_fifty_at_once_one_has_the_effect_and_all_are_told_its_result(consumer: impl Consumer) {
    for round in 1..=10 {
        let id = format!("id-{round}");
        let race =
            (0..50).map(|racer| tokio::spawn(consumer.once(delivery(&id), Then::leave(&racer.to_string()))));
        let mut ended = Vec::new();
        for racer in race.collect::<Vec<_>>() {
            ended.push(racer.await.unwrap().unwrap());
        }
        let winners: Vec<_> = ended.iter().filter(|once| matches!(once, Once::Done(_))).collect();
        assert_eq!(winners.len(), 1, "{ended:?}");
        assert!(ended.iter().all(|once| once.result() == winners[0].result()), "{ended:?}");
        assert_eq!(consumer.effects().await, round);
    }
}

pub(crate) async fn an_effect_that_fails_is_rolled_back_with_its_claim(consumer: impl Consumer) {
    let failed = consumer.once(delivery("id-1"), Then::Fail).await;
    assert_eq!(told(&failed), "the effect failed and was rolled back: no such account");
    assert_eq!(consumer.effects().await, 0);
    assert_eq!(consumer.once(delivery("id-1"), Then::Leave(None)).await.unwrap(), Once::Done(None));
    assert_eq!(consumer.effects().await, 1);
}

pub(crate) async fn an_effect_that_panics_is_rolled_back_with_its_claim(consumer: impl Consumer) {
    let panicked = tokio::spawn(consumer.once(delivery("id-1"), Then::Panic)).await;
    assert!(panicked.unwrap_err().is_panic());
    assert_eq!(consumer.effects().await, 0);
    assert_eq!(consumer.once(delivery("id-1"), Then::Leave(None)).await.unwrap(), Once::Done(None));
    assert_eq!(consumer.effects().await, 1);
}

pub(crate) async fn an_effect_that_spoils_its_transaction_is_not_taken_for_done(consumer: impl Consumer) {
    for spoilt in [Then::PassOver, Then::RollBack] {
        let ended = consumer.once(delivery("id-1"), spoilt.clone()).await;
        assert!(matches!(ended, Err(OnceError::Database(_))), "{spoilt:?}: {}", told(&ended));
        assert_eq!(consumer.effects().await, 0, "{spoilt:?}");
    }
    assert_eq!(consumer.once(delivery("id-1"), Then::Leave(None)).await.unwrap(), Once::Done(None));
}

pub(crate) async fn another_service_with_the_id_is_a_conflict_and_another_tenant_or_consumer_is_not(
    consumer: impl Consumer,
) {
    consumer.once(delivery("id-1"), Then::leave("for billing alone")).await.unwrap();
    let conflict = consumer.once(delivery_from("acme/shop", "id-1"), Then::Leave(None)).await;
    assert!(matches!(conflict, Err(OnceError::Conflict { .. })), "{}", told(&conflict));
    assert_eq!(consumer.effects().await, 1);
    let elsewhere = consumer.once(delivery_from("zeta/billing", "id-1"), Then::Leave(None)).await;
    assert_eq!(elsewhere.unwrap(), Once::Done(None));
    let other = consumer.named("printer").once(delivery("id-1"), Then::Leave(None)).await;
    assert_eq!(other.unwrap(), Once::Done(None));
}

pub(crate) async fn the_same_id_with_another_content_is_not_taken_for_done(consumer: impl Consumer) {
    consumer.once(delivery("id-1"), Then::Leave(None)).await.unwrap();
    for (name, amount) in [("pay", 11), ("refund", 10)] {
        let ended = consumer.once(delivery_of("id-1", name, amount), Then::Panic).await;
        assert!(matches!(ended, Err(OnceError::OtherContent)), "{}", told(&ended));
    }
    assert_eq!(consumer.once(delivery("id-1"), Then::Panic).await.unwrap(), Once::DoneBefore(None));
    assert_eq!(consumer.effects().await, 1);
}

pub(crate) async fn a_result_that_is_too_long_rolls_back(consumer: impl Consumer) {
    for unfit in ["x".repeat(64 * 1024 + 1), "a\0b".to_owned()] {
        let ended = consumer.once(delivery("id-1"), Then::leave(&unfit)).await;
        assert!(matches!(ended, Err(OnceError::Unfit(_))), "{}", told(&ended));
    }
    assert_eq!(consumer.effects().await, 0);
    let longest = Then::leave(&"x".repeat(64 * 1024));
    assert!(matches!(consumer.once(delivery("id-1"), longest).await, Ok(Once::Done(Some(_)))));
}

pub(crate) async fn claims_are_forgotten_after_their_time_and_not_before(consumer: impl Consumer) {
    consumer.once(delivery("id-1"), Then::Leave(None)).await.unwrap();
    // More claims than one transaction deletes, for this consumer and for another one.
    let old = "WITH RECURSIVE old (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM old WHERE n < 4500)
        INSERT INTO snavio_claim (consumer, tenant, message_id, source, hash, done_at)";
    consumer
        .run(&format!("{old} SELECT 'mailer', 'acme', 'old-' || n, 'acme/billing', '', n FROM old"))
        .await;
    consumer
        .run(&format!("{old} SELECT 'printer', 'acme', 'old-' || n, 'acme/billing', '', n FROM old"))
        .await;
    assert!(
        matches!(consumer.cleanup(13).await, Err(OnceError::Unfit(_))),
        "the gateway delivers for 14 days"
    );
    assert_eq!(consumer.cleanup(14).await.unwrap(), 4500);
    assert_eq!(consumer.cleanup(14).await.unwrap(), 0);
    assert_eq!(consumer.once(delivery("id-1"), Then::Panic).await.unwrap(), Once::DoneBefore(None));
    assert_eq!(consumer.named("printer").cleanup(14).await.unwrap(), 4500);
}
