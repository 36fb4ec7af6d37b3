//! Every bound of the data plane: the unit in the name, the reason in the comment.
//!
//! A limit that an operator may set is the default here and has its setting in the configuration.

use std::time::Duration;

/// Larger bodies belong in object storage; the message carries a reference.
pub const BODY_BYTES_DEFAULT: usize = 256 * 1024;
/// What an operator may raise the body limit to.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// One batch is one request: it must fit in memory many times over.
pub const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Entries of one batch request.
pub const BATCH_MESSAGES_MAX: usize = 500;
/// Destinations of all its messages: the answer lists a verdict for each, and is in memory as a whole.
pub const BATCH_DESTINATIONS_MAX: usize = 20_000;
/// Messages of one stream that may wait for their commit at the same time.
pub const STREAM_IN_FLIGHT_MAX: usize = 256;
/// And their bytes: a stream is read no faster than its messages are settled.
pub const STREAM_IN_FLIGHT_BYTES_MAX: usize = BATCH_BYTES_MAX;
/// And their destinations, each of which has a verdict in its answer.
pub const STREAM_IN_FLIGHT_DESTINATIONS_MAX: usize = BATCH_DESTINATIONS_MAX;
/// Answers of one stream that wait for its client to read them.
pub const STREAM_ANSWERS_WAITING_MAX: usize = 16;
/// A form with a client's id and secret.
pub const FORM_BYTES_MAX: usize = 16 * 1024;
/// A body that takes longer than one pause may must have come at this rate: slower ones would keep their room for
/// as long as they please.
pub const BODY_BYTES_PER_SECOND_MIN: u64 = 32 * 1024;

/// What a client still sends after it was refused is taken off the wire for this long, so that it can read why.
pub const LINGER: Duration = Duration::from_secs(5);
/// And up to this much of it.
pub const LINGER_BYTES_MAX: usize = 2 * BATCH_BYTES_MAX;

/// Headers of one request.
pub const HEADERS_MAX: usize = 100;
/// Bytes of the headers of one HTTP/1 request, give or take a read; also what is read ahead of a body.
pub const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the headers of one HTTP/2 request, as that protocol counts them.
pub const HTTP2_HEADER_BYTES_MAX: u32 = 16 * 1024;
/// Requests at the same time over one HTTP/2 connection.
pub const HTTP2_STREAMS_MAX: u32 = 256;
/// Requests that an HTTP/2 client may open and cancel at once before it is cut off.
pub const HTTP2_RESETS_MAX: usize = 64;
/// What an HTTP/2 client may send ahead of being read, per request.
pub const HTTP2_STREAM_BYTES: u32 = 256 * 1024;
/// What an HTTP/2 client may send ahead of being read, over all its requests.
pub const HTTP2_CONNECTION_BYTES: u32 = 1024 * 1024;
/// Connections to the admin listener.
pub const ADMIN_CONNECTIONS_MAX: usize = 100;

/// Deeper documents are refused: recursion must end before the stack does.
pub const JSON_DEPTH_MAX: usize = 64;
/// Members of all objects of one document.
pub const JSON_MEMBERS_MAX: usize = 10_000;
/// Significant digits of a number (those of decimal128).
pub const NUMBER_DIGITS_MAX: usize = 34;
/// Decimal exponent of a number, either way (that of decimal128).
pub const NUMBER_EXPONENT_MAX: i64 = 6144;

/// A correlation id, which every delivery, log line and error repeats.
pub const CORRELATION_ID_BYTES_MAX: usize = 128;
/// The id of a signed webhook, which is that of its message.
pub const WEBHOOK_ID_BYTES_MAX: usize = 128;
/// Signatures of one webhook: two keys overlap, and each costs a comparison.
pub const WEBHOOK_SIGNATURES_MAX: usize = 8;
/// The name of a CloudEvent's attribute: that specification advises 20.
pub const CLOUDEVENT_NAME_BYTES_MAX: usize = 64;
/// Attributes of a CloudEvent that the native event has no member for, its extensions above all.
pub const CLOUDEVENT_EXTENSIONS_MAX: usize = 64;
/// Bytes of the headers of a CloudEvent that is sent in binary mode; many servers take 8 KiB in all.
pub const CLOUDEVENT_HEADER_BYTES_MAX: usize = 6 * 1024;
/// Parts of the external id of an adapter's events.
pub const EXTERNAL_ID_PARTS_MAX: usize = 4;
/// Further members that an adapter takes from a request, and members that it leaves out.
pub const ADAPTER_MEMBERS_MAX: usize = 32;
/// Secrets of one adapter that hold at once: each is tried for every request.
pub const ADAPTER_SECRETS_MAX: usize = 4;
/// The source in ids that are made from content.
pub const ID_SOURCE_CHARS_MAX: usize = 64;
/// What is put before external ids: most of an id is its provider's.
pub const ID_PREFIX_CHARS_MAX: usize = 32;
/// A provider's secret: people choose them, and shorter ones can be guessed,
pub const FOREIGN_SECRET_CHARS_MIN: usize = 16;
/// and longer ones are none.
pub const FOREIGN_SECRET_CHARS_MAX: usize = 512;
/// How old a provider's signature may be at most, whatever its adapter says.
pub const SIGNATURE_TOLERANCE_SECONDS_MAX: u32 = 3600;
/// What is kept of the header that an adapter was verified by.
pub const SIGNATURE_EVIDENCE_CHARS_MAX: usize = 512;
/// The name of an unknown member that a refusal repeats; longer ones are not worth reading.
pub const NAMED_MEMBER_BYTES_MAX: usize = 40;

/// Signed messages must have been signed this close to their receipt.
pub const REPLAY_WINDOW: Duration = Duration::from_secs(60);
/// The longest window that a node can be given.
pub const REPLAY_WINDOW_MAX: Duration = Duration::from_secs(900);
/// A skew at or past this share of the window is reported before it becomes a refusal.
pub const SKEW_NEAR_LIMIT_PERCENT: u64 = 80;

/// Messages that share one commit. Here and wherever messages wait for one, an event counts once for each destination.
pub const COMMIT_MESSAGES_MAX: usize = 256;
/// Bytes that share one commit.
pub const COMMIT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// What a delivery of an event takes besides its message, about.
pub const DELIVERY_BYTES: usize = 256;
/// Messages that may wait for a commit, all tenants together.
pub const INTAKE_MESSAGES_MAX: usize = 32_768;
/// Bytes that may wait for a commit, all tenants together.
pub const INTAKE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// One tenant may hold one part in this many of whatever is shared: the intake's room, requests, bodies, telemetry
/// that waits.
pub const TENANT_PART: usize = 4;

/// What a request counts beside its messages: answering one costs as much as many messages of a batch.
pub const TURN_OF_REQUEST: usize = 32;
/// What one tenant may take through the pipeline at once, each message counting one beside its request: as many
/// single messages as keep commits large.
pub const TENANT_TURNS: usize = 64 * (TURN_OF_REQUEST + 1);

/// How long a strict claim is kept (CLM-3).
pub const STRICT_KEEP: Duration = Duration::from_secs(300);
/// A claim must outlive the replay window on both sides (CLM-20), and the time that a copy which came at its very
/// end may wait for its commit; one that waits this long is refused where its route claims.
pub const CLAIM_KEEP_SLACK: Duration = Duration::from_secs(60);
/// The longest a claim may be asked to live, where it is not kept for an audit.
pub const CLAIM_KEEP_MAX: Duration = Duration::from_secs(400 * 86_400);
/// How long claims of domain events are kept (CLM-3),
pub const EVENT_KEEP: Duration = Duration::from_secs(86_400);
/// and those of adapters with derived ids.
pub const SEEN_KEEP: Duration = Duration::from_secs(30 * 86_400);
/// The least that accounting claims are kept: seven years (CLM-15),
pub const LEDGER_KEEP_MIN: Duration = Duration::from_secs(2_557 * 86_400);
/// and the most: a hundred.
pub const LEDGER_KEEP_MAX: Duration = Duration::from_secs(36_525 * 86_400);
/// Conflicts that are recorded about what one id means, for each tenant that must decide (CLM-8): more are counted.
pub const CONFLICTS_PER_ID_MAX: usize = 100;
/// Records of conflicts of one id for all tenants together, past which a tenant has its first one and no more.
pub const CONFLICTS_OF_ID_MAX: usize = 2000;
/// Places where two messages differ that are told.
pub const CONFLICT_DIFFERENCES_MAX: usize = 100;
/// Bytes of the note on a conflict.
pub const CONFLICT_NOTE_BYTES_MAX: usize = 4096;

/// How long an entity is remembered after it last went on (ORD-2),
pub const ORDER_TTL: Duration = Duration::from_secs(24 * 3600);
/// and at most.
pub const ORDER_TTL_MAX: Duration = Duration::from_secs(400 * 86_400);
/// The name of an entity: it is a key of the store.
pub const ENTITY_BYTES_MAX: usize = 256;
/// Gaps of one entity that are tracked; the lowest are forgotten first.
pub const ORDER_GAPS_MAX: usize = 32;
/// Numbers of one entity that failed for good and are tracked, where it is parked behind them: the lowest, and the highest.
pub const ORDER_FAILED_MAX: usize = 32;
/// Messages of one entity that wait for those before them, whatever its route says (ORD-3),
pub const ORDER_WAITING_MAX: usize = 256;
/// Messages of one entity whose sender is looked up for a service that asks for its ids.
pub const ENTITY_SENDERS_MAX: usize = 32;
/// and how long they do so: a wait must be shorter than what is remembered.
pub const ORDER_WAIT_SECONDS_MAX: u32 = 3600;
/// Types that close an entity.
pub const ORDER_COMPLETIONS_MAX: usize = 16;

/// Exactly-the-same-message memory of a node: entries of one generation, one for each destination of a message.
pub const RECENT_MESSAGES_MAX: usize = 500_000;
/// Destinations that a message is remembered at one by one. A message for more is remembered once, for all of them: a
/// few of those would make the node forget all others, and a new subscription gets the next one.
pub const REMEMBERED_DESTINATIONS_MAX: usize = 16;
/// Reservations of that memory, one for each message: whatever may wait for a commit, and as much again that waits to be
/// handed to it. An intake with more room has twice its room.
pub const RESERVED_MESSAGES_MAX: usize = 2 * INTAKE_MESSAGES_MAX;
/// How often copies of one message wait, one after another, for a first that is judged and refused. The rest of a
/// request's copies then get the answer of the last one.
pub const COPY_ROUNDS_MAX: usize = 4;

/// Deliveries that one queue may hold before its routes answer `overloaded`.
pub const QUEUE_DEPTH_MAX: usize = 10_000_000;
/// Deliveries of one queue that may be in flight at the same time, as on SQS.
pub const QUEUE_IN_FLIGHT_MAX: usize = 120_000;
/// Deliveries handed out by one receive call.
pub const RECEIVE_MESSAGES_MAX: usize = 10;
/// The longest a receive call may wait.
pub const RECEIVE_WAIT_MAX: Duration = Duration::from_secs(20);
/// How long a received delivery stays hidden when the caller does not say.
pub const VISIBILITY_DEFAULT: Duration = Duration::from_secs(30);
/// The longest visibility, as on SQS.
pub const VISIBILITY_MAX: Duration = Duration::from_secs(12 * 3600);
/// Receives before a delivery becomes a dead letter, when its route does not say.
pub const RECEIVES_DEFAULT: u32 = 5;
/// The most receives a route may ask for.
pub const RECEIVES_MAX: u32 = 1000;
/// Subscriptions of one event type: all deliveries of an event are in one commit.
pub const SUBSCRIPTIONS_PER_TYPE_MAX: usize = 1000;
/// How long a delivery waits in a queue before it becomes a dead letter.
pub const QUEUE_RETENTION: Duration = Duration::from_secs(14 * 86_400);
/// Acknowledgements and extensions in one request.
pub const ACK_MESSAGES_MAX: usize = 500;

/// Unread telemetry ages out after this long (TEL-4).
pub const TELEMETRY_RETENTION: Duration = Duration::from_secs(14 * 86_400);
/// Records of refusals that may wait for a commit.
pub const TELEMETRY_GATHERED_MAX: usize = 10_000;
/// Records of one source and reason kept one by one in a gathering; the rest is counted.
pub const TELEMETRY_PER_CAUSE_MAX: usize = 100;

/// Records that one request for telemetry may pass over in search of those it asks for.
pub const TELEMETRY_LOOKED_AT_MAX: usize = 10 * PAGE_MAX;

/// Series of one metric, whatever is registered (QUA-9).
pub const METRIC_SERIES_MAX: usize = 2_000;
/// Those of one tenant's routes.
pub const METRIC_SERIES_PER_TENANT_MAX: usize = METRIC_SERIES_MAX / TENANT_PART;

/// Entries of one page of a list.
pub const PAGE_MAX: usize = 1000;
/// Payload bytes of one page of messages: it must fit in memory many times over.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Entries of a page when the caller does not say.
pub const PAGE_DEFAULT: usize = 100;
/// Rows that one sweep may delete before it lets others write.
pub const SWEEP_ROWS_MAX: usize = 2_000;

/// Lifetime of an access token (REG-7).
pub const TOKEN_LIFETIME: Duration = Duration::from_secs(600);
/// How far a workload's issuer's clock may be from this one.
pub const ASSERTION_LEEWAY: Duration = Duration::from_secs(30);
/// The longest lifetime of a workload's token that is exchanged for one of ours.
pub const ASSERTION_LIFETIME_MAX: Duration = Duration::from_secs(3600);
/// Days that a person's token lasts, when not said (REG-9).
pub const PERSONAL_TOKEN_DAYS: u32 = 90;
/// The longest a person's token may last.
pub const PERSONAL_TOKEN_DAYS_MAX: u32 = 365;
/// Verified tokens that a node remembers.
pub const TOKENS_REMEMBERED_MAX: usize = 50_000;
/// Failed authentications of one address within a window; further ones are told to wait (PIP-1).
pub const AUTH_FAILURES_MAX: u32 = 20;
/// Messages of one sender with a wrong signature within a window; further ones are told to wait (PIP-1). A sender with a
/// wrong key is told so for more than a few, and a flood of them leaves no telemetry.
pub const SIGNATURE_FAILURES_MAX: u32 = 100;
/// The window over which both are counted.
pub const AUTH_FAILURES_WINDOW: Duration = Duration::from_secs(60);
/// Addresses whose failures are counted one by one.
pub const AUTH_CALLERS_MAX: usize = 10_000;
/// Changes that one request for the changelog may pass over in search of those that its caller may see.
pub const CHANGES_LOOKED_AT_MAX: usize = 10 * PAGE_MAX;
/// Changes in one registry transaction.
pub const REGISTRY_CHANGES_MAX: usize = 10_000;
/// After this time nothing is written any more by a permission that was taken back (REG-15, REG-17): five seconds of
/// age, and what a store may take for a commit.
pub const REVOCATION_SETTLED: Duration = Duration::from_secs(15);
/// Changes that one seal covers: it names each by its digest, and is read as a whole.
pub const SEAL_CHANGES_MAX: usize = 256;
/// Seals of one page of a list.
pub const SEALS_PAGE_MAX: usize = 100;
/// Changes that are looked through to compare two versions of the registry, or to go back to one.
pub const PAST_CHANGES_MAX: usize = 100_000;
/// Grants, those to the same target first, and event types that are compared with a name that is not granted: refusing
/// must stay cheap.
pub const GRANTS_COMPARED_MAX: usize = 20;
/// Grants that are looked through for those that have not expired.
pub const GRANTS_LOOKED_THROUGH_MAX: usize = 1000;
/// Refusals of one request that name the nearest grants.
pub const NEAREST_REFUSALS_MAX: usize = 5;
/// Known names that are compared with an unknown one of a filter: refusing must stay cheap.
pub const NAMES_COMPARED_MAX: usize = 1000;
/// An unknown name that is compared with known ones. The longest legal names are those of grants: two services and a name.
pub const NAME_COMPARED_BYTES_MAX: usize = 512;
/// Nearest names that a refusal names.
pub const NEAREST_NAMES_MAX: usize = 3;
/// Requests for grants of one tenant that wait for an answer, those to services that are not there too (REG-8).
pub const GRANT_REQUESTS_MAX: usize = 500;
/// Free text that a person gives as a reason.
pub const REASON_CHARS_MAX: usize = 1000;
/// Where to reach a tenant's people.
pub const CONTACT_CHARS_MAX: usize = 320;
/// What a service is, for people.
pub const DESCRIPTION_CHARS_MAX: usize = 1000;

/// Days between two keys of a service, when not said (REG-10).
pub const KEY_DAYS: u32 = 30;
/// Days for which a key is accepted beside the one after it, when not said (REG-10).
pub const KEY_OVERLAP_DAYS: u32 = 7;
/// The longest a key may be the current one.
pub const KEY_DAYS_MAX: u32 = 3_650;
/// A key that is not accepted any more is kept for this long, so that whoever still signs with it hears why.
pub const KEY_KEPT: Duration = Duration::from_secs(30 * 86_400);
/// Keys of one service that are kept, those that have ended too: a webhook's signature is tried against each.
pub const KEYS_KEPT_MAX: usize = 16;
/// A key that ends within this time is reported, if its owner does not seem to know (REG-12).
pub const KEY_ENDS_SOON: Duration = Duration::from_secs(48 * 3600);
/// How often a producer is expected to ask for its configuration (REG-11).
pub const CONFIG_POLL: Duration = Duration::from_secs(12 * 3600);
/// An owner that has not asked for this long does not seem to know of a new key (REG-12).
pub const CONFIG_POLL_MISSED: Duration = Duration::from_secs(24 * 3600);
/// A poll, and what was given out with it, is written down this often at most for one client and version (REG-11).
pub const CONFIG_POLL_NOTED: Duration = Duration::from_secs(60);
/// Signed requests of one service that are remembered, so that none is good twice (REG-11): as many instances may start
/// within the minutes that each is remembered.
pub const SIGNED_REQUESTS_MAX: usize = 1_000;
/// The use of one version of a previous key is reported this often at most, by each node (REG-12).
pub const LEGACY_KEY_REPORTED: Duration = Duration::from_secs(3600);
/// Keys and clients whose reports a node remembers.
pub const KEY_REPORTS_REMEMBERED_MAX: usize = 10_000;

/// Between the latest end of a call and the end of its lease: what came of it goes on record meanwhile.
pub const CALL_LEASE_MARGIN: Duration = Duration::from_millis(500);

/// Days for which the message and the answer of a ledger claim stay beside it, when not said (CLM-15).
pub const HOT_DAYS: u32 = 400;
/// Records of one segment of the archive: reading one back reads all of them,
pub const ARCHIVE_RECORDS_MAX: usize = 500;
/// and content bytes at which a segment ends, whatever the size of its last record.
pub const ARCHIVE_SEGMENT_BYTES: usize = 4 * 1024 * 1024;
/// The most that a segment may have, packed or unpacked: a message to very many destinations, each of which answered.
pub const ARCHIVE_SEGMENT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Segments that are read back at once for those who want something of them: each is in memory as a whole.
pub const ARCHIVE_READS_AT_ONCE: usize = 4;
/// Bytes of segments that a node remembers for a moment: those who come together mostly want the same ones.
pub const ARCHIVE_REMEMBERED_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Segments that the archiver writes before it looks whether it is still the one who does.
pub const ARCHIVE_SEGMENTS_PER_ROUND: usize = 20;
/// Holds of one tenant that are in force at once: each is looked at for whatever is to be deleted.
pub const HOLDS_PER_TENANT_MAX: usize = 1_000;
/// The longest an attempt may be in progress without a word from its worker.
pub const DEADLINE_SECONDS_MAX: u32 = 12 * 3600;
/// The longest pause between two attempts.
pub const BACKOFF_SECONDS_MAX: u32 = 12 * 3600;
/// For how long a sender waits for an HTTP processor's answer, when it does not say.
pub const FOLLOW_USUAL: Duration = Duration::from_secs(10);
/// And at most.
pub const FOLLOW_MAX: Duration = Duration::from_secs(60);
/// Senders that wait at once on one node for what becomes of their messages.
pub const FOLLOWERS_MAX: usize = 10_000;
/// Late reports that a node remembers to have put on record.
pub const FENCED_REMEMBERED_MAX: usize = 10_000;
/// Ids that came again whose counts wait for a commit.
pub const REPEATS_GATHERED_MAX: usize = 10_000;
/// New conflicts that have a line of the log each, in a second, and attempts that failed; of the rest it has the number.
pub const FLOOD_LINES_MAX: u32 = 10;
/// How often one cause of failures has a line of the log, at most.
pub const LOG_LINE_EVERY: Duration = Duration::from_secs(1);
/// Causes that are told apart at one place that logs; further ones share a line.
pub const LOG_CAUSES_MAX: usize = 16;
/// The text that further causes share.
pub const LOG_OTHER_CAUSES: &str = "other causes";
/// Characters of a cause by which it is told apart.
pub const LOG_CAUSE_CHARS_MAX: usize = 300;
/// Calls of processors and receivers under way at once for one queue of a node.
pub const CALLS_PER_QUEUE_MAX: usize = 64;
/// Such calls for all queues of a node, half of them divided by tenants; past that each queue may have one. Each holds a connection and the bytes of a message.
pub const CALLS_MAX: usize = 1024;
/// Names that are looked up at once for one kind of calls. Each takes a thread of those that all of a node's slow work is done
/// by, of which there are 512, for as long as the machine's resolver tries, whoever has given up meanwhile.
pub const LOOKUPS_MAX: usize = 64;
/// Those of them that are kept for names that answered of late; the others are for all other names.
pub const LOOKUPS_ANSWERING_MAX: usize = LOOKUPS_MAX / 2;
/// Those of one tenant's names, of either half.
pub const LOOKUPS_PER_TENANT_MAX: usize = LOOKUPS_ANSWERING_MAX / 8;
/// Names of one tenant that are known to have answered of late.
pub const NAMES_ANSWERING_PER_TENANT_MAX: usize = 256;
/// Those of all tenants.
pub const NAMES_ANSWERING_MAX: usize = 64 * NAMES_ANSWERING_PER_TENANT_MAX;
/// What a receiver may answer to a push; nothing of it is kept.
pub const PUSH_ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Calls that find a target down, one after the other, before it is left alone for a while.
pub const BREAKER_FAILURES: u32 = 5;
/// For how long at first; it doubles with each probe that finds it down again.
pub const BREAKER_PAUSE: Duration = Duration::from_secs(1);
/// And at most.
pub const BREAKER_PAUSE_MAX: Duration = Duration::from_secs(60);
/// A posting reference.
pub const REFERENCE_BYTES_MAX: usize = 256;
/// A JSON pointer in the settings of a route.
pub const POINTER_BYTES_MAX: usize = 256;
/// What a processor may answer; larger answers belong in a store of its own.
pub const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// Levels that the gateway's own documents put around an answer: a batch, its results, an event, its subscriptions, and
/// one of them.
pub const ANSWER_LEVELS_AROUND: usize = 5;
/// Members that they put beside an answer in an entry, at most.
pub const ANSWER_MEMBERS_AROUND: usize = 40;
/// What is kept of an answer's content type: longer ones are none.
pub const CONTENT_TYPE_BYTES_MAX: usize = 256;
/// What is kept of an attempt's error, for people.
pub const ERROR_CHARS_MAX: usize = 500;

/// The manifest of a snapshot, which names its objects.
pub const SNAPSHOT_MANIFEST_BYTES_MAX: usize = 4 * 1024 * 1024;
/// An object of a snapshot, packed or unpacked: several are in memory at once.
pub const SNAPSHOT_OBJECT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Unpacked bytes at which a writer goes on with the next object.
pub const SNAPSHOT_OBJECT_BYTES: usize = 4 * 1024 * 1024;
/// One entry of a snapshot: the longest texts that may be registered fit several times over.
pub const SNAPSHOT_ENTRY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a snapshot's objects, unless the operator says otherwise.
pub const SNAPSHOT_BYTES_DEFAULT: u64 = 1024 * 1024 * 1024;
/// A snapshot that has so many percent of the bytes it may have is worth a warning (REG-22).
pub const SNAPSHOT_NEAR_LIMIT_PERCENT: u64 = 80;
/// Clocks may differ: a snapshot that was made so far ahead of a node's time was made just now.
pub const SNAPSHOT_AHEAD_MAX: Duration = Duration::from_secs(60);

/// Between two lines of the log about messages that pass a route unordered: a producer without numbers fills no log.
pub const UNORDERED_LOG_INTERVAL: Duration = Duration::from_secs(60);

const _: () = assert!(SNAPSHOT_OBJECT_BYTES + SNAPSHOT_ENTRY_BYTES_MAX <= SNAPSHOT_OBJECT_BYTES_MAX);
const _: () =
    assert!(2 * (ARCHIVE_SEGMENT_BYTES + BODY_BYTES_MAX + ANSWER_BYTES_MAX) <= ARCHIVE_SEGMENT_BYTES_MAX);
const _: () = assert!(CLAIM_KEEP_MAX.as_secs() < LEDGER_KEEP_MIN.as_secs());
const _: () = assert!(BODY_BYTES_DEFAULT <= BODY_BYTES_MAX);
const _: () = assert!(BODY_BYTES_MAX <= BATCH_BYTES_MAX);
const _: () = assert!(BODY_BYTES_MAX <= COMMIT_BYTES_MAX);
const _: () = assert!(BODY_BYTES_MAX <= PAGE_BYTES_MAX);
const _: () = assert!(BATCH_MESSAGES_MAX <= BATCH_DESTINATIONS_MAX);
const _: () = assert!(SUBSCRIPTIONS_PER_TYPE_MAX <= BATCH_DESTINATIONS_MAX);
const _: () = assert!(INTAKE_MESSAGES_MAX + BATCH_DESTINATIONS_MAX <= RESERVED_MESSAGES_MAX);
const _: () = assert!(TURN_OF_REQUEST + BATCH_MESSAGES_MAX <= TENANT_TURNS);
const _: () = assert!(STRICT_KEEP.as_secs() >= 2 * REPLAY_WINDOW.as_secs() + CLAIM_KEEP_SLACK.as_secs());
