//! The suite for a consumer's claims, for each database.

use snavio_sdk::once::{Once, OnceError};

use crate::consumer::{AfterWrite, Consumer, delivery, delivery_from, delivery_with, describe};

/// Runs every test of the suite for a consumer.
macro_rules! suite {
    ($consumer:ty) => {
        $crate::suite::suite!($consumer:
            second_delivery_returns_the_first_result,
            fifty_racers_have_one_effect_and_one_result,
            failed_effect_is_rolled_back_with_its_claim,
            panicking_effect_is_rolled_back_with_its_claim,
            effect_with_a_spoilt_transaction_is_not_done,
            same_id_conflicts_only_within_tenant_and_consumer,
            same_id_with_different_content_is_refused,
            overlong_result_rolls_back,
            claims_are_deleted_only_after_their_time,
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

pub(crate) async fn second_delivery_returns_the_first_result(consumer: impl Consumer) {
    let first = consumer.once(delivery("id-1"), AfterWrite::returning("posted as 7")).await.unwrap();
    assert_eq!(first, Once::Done(Some("posted as 7".into())));
    let second = consumer.once(delivery("id-1"), AfterWrite::Panic).await.unwrap();
    assert_eq!(second, Once::DoneBefore(Some("posted as 7".into())));
    let other = consumer.once(delivery("id-2"), AfterWrite::Return(None)).await.unwrap();
    assert_eq!(other, Once::Done(None));
    assert_eq!(consumer.once(delivery("id-2"), AfterWrite::Panic).await.unwrap(), Once::DoneBefore(None));
    assert_eq!(consumer.effects().await, 2);
}

pub(crate) async fn fifty_racers_have_one_effect_and_one_result(consumer: impl Consumer) {
    for round in 1..=10 {
        let id = format!("id-{round}");
        let race = (0..50).map(|racer| {
            tokio::spawn(consumer.once(delivery(&id), AfterWrite::returning(&racer.to_string())))
        });
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

pub(crate) async fn failed_effect_is_rolled_back_with_its_claim(consumer: impl Consumer) {
    let failed = consumer.once(delivery("id-1"), AfterWrite::Fail).await;
    assert_eq!(describe(&failed), "the effect failed and was rolled back: no such account");
    assert_eq!(consumer.effects().await, 0);
    assert_eq!(consumer.once(delivery("id-1"), AfterWrite::Return(None)).await.unwrap(), Once::Done(None));
    assert_eq!(consumer.effects().await, 1);
}

pub(crate) async fn panicking_effect_is_rolled_back_with_its_claim(consumer: impl Consumer) {
    let panicked = tokio::spawn(consumer.once(delivery("id-1"), AfterWrite::Panic)).await;
    assert!(panicked.unwrap_err().is_panic());
    assert_eq!(consumer.effects().await, 0);
    assert_eq!(consumer.once(delivery("id-1"), AfterWrite::Return(None)).await.unwrap(), Once::Done(None));
    assert_eq!(consumer.effects().await, 1);
}

pub(crate) async fn effect_with_a_spoilt_transaction_is_not_done(consumer: impl Consumer) {
    for spoilt in [AfterWrite::IgnoreError, AfterWrite::RollBack] {
        let ended = consumer.once(delivery("id-1"), spoilt.clone()).await;
        assert!(matches!(ended, Err(OnceError::Database(_))), "{spoilt:?}: {}", describe(&ended));
        assert_eq!(consumer.effects().await, 0, "{spoilt:?}");
    }
    assert_eq!(consumer.once(delivery("id-1"), AfterWrite::Return(None)).await.unwrap(), Once::Done(None));
}

pub(crate) async fn same_id_conflicts_only_within_tenant_and_consumer(consumer: impl Consumer) {
    consumer.once(delivery("id-1"), AfterWrite::returning("for billing alone")).await.unwrap();
    let conflict = consumer.once(delivery_from("acme/shop", "id-1"), AfterWrite::Return(None)).await;
    assert!(matches!(conflict, Err(OnceError::Conflict { .. })), "{}", describe(&conflict));
    assert_eq!(consumer.effects().await, 1);
    let elsewhere = consumer.once(delivery_from("zeta/billing", "id-1"), AfterWrite::Return(None)).await;
    assert_eq!(elsewhere.unwrap(), Once::Done(None));
    let other = consumer.named("printer").once(delivery("id-1"), AfterWrite::Return(None)).await;
    assert_eq!(other.unwrap(), Once::Done(None));
}

pub(crate) async fn same_id_with_different_content_is_refused(consumer: impl Consumer) {
    consumer.once(delivery("id-1"), AfterWrite::Return(None)).await.unwrap();
    for (name, amount) in [("pay", 11), ("refund", 10)] {
        let ended = consumer.once(delivery_with("id-1", name, amount), AfterWrite::Panic).await;
        assert!(matches!(ended, Err(OnceError::OtherContent)), "{}", describe(&ended));
    }
    assert_eq!(consumer.once(delivery("id-1"), AfterWrite::Panic).await.unwrap(), Once::DoneBefore(None));
    assert_eq!(consumer.effects().await, 1);
}

pub(crate) async fn overlong_result_rolls_back(consumer: impl Consumer) {
    for unfit in ["x".repeat(64 * 1024 + 1), "a\0b".to_owned()] {
        let ended = consumer.once(delivery("id-1"), AfterWrite::returning(&unfit)).await;
        assert!(matches!(ended, Err(OnceError::Unfit(_))), "{}", describe(&ended));
    }
    assert_eq!(consumer.effects().await, 0);
    let longest = AfterWrite::returning(&"x".repeat(64 * 1024));
    assert!(matches!(consumer.once(delivery("id-1"), longest).await, Ok(Once::Done(Some(_)))));
}

pub(crate) async fn claims_are_deleted_only_after_their_time(consumer: impl Consumer) {
    consumer.once(delivery("id-1"), AfterWrite::Return(None)).await.unwrap();
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
    assert_eq!(consumer.once(delivery("id-1"), AfterWrite::Panic).await.unwrap(), Once::DoneBefore(None));
    assert_eq!(consumer.named("printer").cleanup(14).await.unwrap(), 4500);
}
