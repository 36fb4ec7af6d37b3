//! The processing cost of one message before any store access: `cargo bench -p snavio-model`.

#![expect(clippy::unwrap_used, reason = "a bench that cannot set itself up must stop")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use snavio_model::id::MessageId;
use snavio_model::json::Reader;
use snavio_model::message::command::{CommandEnvelope, NewCommand};
use snavio_model::message::payload::Payload;
use snavio_model::name::{CommandName, KeyVersion, ServiceName, TargetText};
use snavio_model::signature::signing::Secret;

/// 400 bytes as a common producer writes them: unsorted, with white space, money and an escape.
const PAYLOAD: &str = r#"{"invoiceId": "INV-2026-004711", "customer": {"id": "c-88121", "name": "Zo\u00eb & Sons", "vat": "DE811907980"}, "amount": 1234567.10, "currency": "EUR", "postingDate": "2026-11-15", "effectiveDate": "2026-11-30", "lines": [{"sku": "A-1", "qty": 3, "price": 0.0500}, {"sku": "B-22", "qty": 12, "price": 199.99}], "approved": true, "note": null, "reference": "c0ffee00-1234-4abc-9def-0123456789ab"}"#;

fn canonical(c: &mut Criterion) {
    let sorted = Payload::parse(PAYLOAD.as_bytes()).unwrap();
    let mut group = c.benchmark_group("canonical");
    for (name, payload) in [("as_sent", PAYLOAD.as_bytes()), ("sorted", sorted.canonical())] {
        group.throughput(Throughput::Bytes(payload.len() as u64));
        group.bench_function(name, |b| {
            let mut out = Vec::with_capacity(1024);
            b.iter(|| {
                out.clear();
                let mut reader = Reader::new(black_box(payload)).unwrap();
                reader.canonical(&mut out).unwrap();
                reader.finish().unwrap();
                out.len()
            });
        });
    }
    group.finish();
}

fn command(c: &mut Criterion) {
    let secret = Secret::from_bytes(*b"snavio-test-secret-32-bytes-long");
    let version_id = KeyVersion::new("hmac-v1").unwrap();
    let source = ServiceName::new("acme/billing").unwrap();
    let target = ServiceName::new("acme/ledger").unwrap();
    let new = NewCommand {
        id: &MessageId::uuid("0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6f").unwrap(),
        timestamp: "2026-11-15T08:30:00.123Z",
        version_id: &version_id,
        source: &source,
        target: &TargetText::new("acme/ledger").unwrap(),
        name: &CommandName::new("post-invoice").unwrap(),
        payload: PAYLOAD.as_bytes(),
        correlation_id: None,
    };
    let body = new.sign(&secret).unwrap();
    let read = CommandEnvelope::parse(&body).unwrap();
    let signature = read.hmac.unwrap().unwrap();
    let mut group = c.benchmark_group("command");
    group.bench_function("parse", |b| b.iter(|| CommandEnvelope::parse(black_box(&body)).unwrap()));
    group.bench_function("verify", |b| {
        b.iter(|| black_box(&read).signing_text(&version_id, &source).verify(&secret, &signature));
    });
    group.bench_function("domain_hash", |b| b.iter(|| black_box(&read).domain_hash(&target)));
    group.bench_function("sign", |b| b.iter(|| black_box(&new).sign(&secret).unwrap()));
    group.finish();
}

criterion_group!(benches, canonical, command);
criterion_main!(benches);
