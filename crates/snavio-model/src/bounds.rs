//! Every bound of the data plane: the unit in the name, the reason in the comment.
//!
//! If an operator can change a limit, the constant is the default of its setting.

use std::time::Duration;

/// Larger bodies belong in object storage; the message carries a reference.
pub const BODY_BYTES_DEFAULT: usize = 256 * 1024;
/// Upper bound of the operator's body limit.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// A batch is one request, and many of them must fit in memory together.
pub const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
pub const BATCH_MESSAGES_MAX: usize = 500;
/// Destinations of all messages of a batch. The answer lists a verdict for each and is in memory as a whole.
pub const BATCH_DESTINATIONS_MAX: usize = 20_000;
/// Messages of one stream that may wait for their commit at the same time.
pub const STREAM_IN_FLIGHT_MAX: usize = 256;
/// Bytes of the messages of one stream that may wait for their commit: the node reads a stream no faster than
/// it settles the messages.
pub const STREAM_IN_FLIGHT_BYTES_MAX: usize = BATCH_BYTES_MAX;
/// Destinations of the messages of one stream that may wait for their commit. The answer lists a verdict for
/// each.
pub const STREAM_IN_FLIGHT_DESTINATIONS_MAX: usize = BATCH_DESTINATIONS_MAX;
/// Answers of one stream that wait until the client reads them.
pub const STREAM_ANSWERS_WAITING_MAX: usize = 16;
/// A form with the id and secret of a client.
pub const FORM_BYTES_MAX: usize = 16 * 1024;
/// Minimum rate of a body. A node allows a body its timeout plus the time of its bytes at this rate: a client
/// that sends more slowly could otherwise occupy memory for as long as it likes.
pub const BODY_BYTES_PER_SECOND_MIN: u64 = 32 * 1024;

/// After a refusal the node reads and discards the rest of the request for this long, so that the client can
/// read the refusal.
pub const LINGER: Duration = Duration::from_secs(5);
/// Most bytes that the node discards in [`LINGER`].
pub const LINGER_BYTES_MAX: usize = 2 * BATCH_BYTES_MAX;

pub const HEADERS_MAX: usize = 100;
/// Bytes of the headers of one HTTP/1 request, accurate to one read. The node also reads this much of a body
/// ahead.
pub const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the headers of one HTTP/2 request, as HTTP/2 counts them.
pub const HTTP2_HEADER_BYTES_MAX: u32 = 16 * 1024;
/// Concurrent requests on one HTTP/2 connection.
pub const HTTP2_STREAMS_MAX: u32 = 256;
/// Requests that an HTTP/2 client may open and cancel in quick succession before the node closes the
/// connection.
pub const HTTP2_RESETS_MAX: usize = 64;
/// Flow-control window of one HTTP/2 request: bytes that the client may send before the node reads them.
pub const HTTP2_STREAM_BYTES: u32 = 256 * 1024;
/// Flow-control window of one HTTP/2 connection.
pub const HTTP2_CONNECTION_BYTES: u32 = 1024 * 1024;
pub const ADMIN_CONNECTIONS_MAX: usize = 100;

/// The parser refuses deeper documents, because recursion must end before the stack overflows.
pub const JSON_DEPTH_MAX: usize = 64;
/// Members of all objects of one document together.
pub const JSON_MEMBERS_MAX: usize = 10_000;
/// Significant digits of a number (those of decimal128).
pub const NUMBER_DIGITS_MAX: usize = 34;
/// Absolute value of a number's decimal exponent (that of decimal128).
pub const NUMBER_EXPONENT_MAX: i64 = 6144;

/// Every delivery, log line and error repeats the correlation id.
pub const CORRELATION_ID_BYTES_MAX: usize = 128;
/// The id of a signed webhook is the id of its message.
pub const WEBHOOK_ID_BYTES_MAX: usize = 128;
/// Signatures of one webhook. Two keys overlap, and each signature costs a comparison.
pub const WEBHOOK_SIGNATURES_MAX: usize = 8;
/// The name of a CloudEvents attribute; the CloudEvents specification advises 20.
pub const CLOUDEVENT_NAME_BYTES_MAX: usize = 64;
/// CloudEvents attributes without a member in the native event, mostly extensions.
pub const CLOUDEVENT_EXTENSIONS_MAX: usize = 64;
/// Header bytes of a CloudEvent in binary mode. Many servers accept 8 KiB in total.
pub const CLOUDEVENT_HEADER_BYTES_MAX: usize = 6 * 1024;
/// Parts of the external id of an adapter's events.
pub const EXTERNAL_ID_PARTS_MAX: usize = 4;
/// Members that an adapter adds from a request, and members that it omits.
pub const ADAPTER_MEMBERS_MAX: usize = 32;
/// Secrets of one adapter that are valid at the same time. The gateway tries each for every request.
pub const ADAPTER_SECRETS_MAX: usize = 4;
/// The source part of ids that are derived from content.
pub const ID_SOURCE_CHARS_MAX: usize = 64;
/// The prefix of external ids. Most of such an id must remain the provider's.
pub const ID_PREFIX_CHARS_MAX: usize = 32;
/// People choose the secret of a provider, and a shorter one can be guessed.
pub const FOREIGN_SECRET_CHARS_MIN: usize = 16;
/// A longer text is not a secret.
pub const FOREIGN_SECRET_CHARS_MAX: usize = 512;
/// Maximum age of a provider's signature, whatever tolerance the adapter sets.
pub const SIGNATURE_TOLERANCE_SECONDS_MAX: u32 = 3600;
/// Characters that the gateway stores of the header that verified an adapter's request.
pub const SIGNATURE_EVIDENCE_CHARS_MAX: usize = 512;
/// A refusal repeats the name of an unknown member up to this length; longer ones are not worth reading.
pub const NAMED_MEMBER_BYTES_MAX: usize = 40;

/// Maximum distance between the signed time of a message and its receipt, in both directions.
pub const REPLAY_WINDOW: Duration = Duration::from_secs(60);
/// Longest replay window that an operator can configure.
pub const REPLAY_WINDOW_MAX: Duration = Duration::from_secs(900);
/// The gateway reports a skew at or above this share of the window before it becomes a refusal.
pub const SKEW_NEAR_LIMIT_PERCENT: u64 = 80;

/// Messages that share one commit. In all counts of messages that wait for a commit, an event counts once for
/// each destination.
pub const COMMIT_MESSAGES_MAX: usize = 256;
/// Bytes that share one commit.
pub const COMMIT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Approximate bytes of a delivery of an event, beside its message.
pub const DELIVERY_BYTES: usize = 256;
/// Messages that may wait for a commit, all tenants together.
pub const INTAKE_MESSAGES_MAX: usize = 32_768;
/// Bytes that may wait for a commit, all tenants together.
pub const INTAKE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// One tenant may occupy `1 / TENANT_PART` of every shared resource: intake, requests, bodies, waiting
/// telemetry.
pub const TENANT_PART: usize = 4;

/// Cost of a request in units of messages: to answer one costs as much as this many messages of a batch.
pub const TURN_OF_REQUEST: usize = 32;
/// Concurrency limit of one tenant in the pipeline. Each message counts one, beside its request
/// ([`TURN_OF_REQUEST`]). The value allows as many single messages as keep commits large.
pub const TENANT_TURNS: usize = 64 * (TURN_OF_REQUEST + 1);

/// Retention of a `strict` claim (CLM-3).
pub const STRICT_KEEP: Duration = Duration::from_secs(300);
/// A claim must outlive the replay window on both sides (CLM-20), and also the time that a copy which arrives
/// at the very end may wait for its commit. A message that waits this long is refused if its route claims
/// ids.
pub const CLAIM_KEEP_SLACK: Duration = Duration::from_secs(60);
/// Longest retention of claims that are not kept for an audit.
pub const CLAIM_KEEP_MAX: Duration = Duration::from_secs(400 * 86_400);
/// Retention of an `event` claim (CLM-3).
pub const EVENT_KEEP: Duration = Duration::from_secs(86_400);
/// Retention of a `seen` claim, for adapters with derived ids.
pub const SEEN_KEEP: Duration = Duration::from_secs(30 * 86_400);
/// Shortest retention of a `ledger` claim: seven years (CLM-15).
pub const LEDGER_KEEP_MIN: Duration = Duration::from_secs(2_557 * 86_400);
/// Longest retention of a `ledger` claim: a hundred years.
pub const LEDGER_KEEP_MAX: Duration = Duration::from_secs(36_525 * 86_400);
/// Conflicts about the content of one id that are recorded for each tenant that must resolve them (CLM-8).
/// Further ones are counted.
pub const CONFLICTS_PER_ID_MAX: usize = 100;
/// Conflict records of one id for all tenants together. Past this limit a tenant gets its first record and no
/// more.
pub const CONFLICTS_OF_ID_MAX: usize = 2000;
/// Differences between two messages that a conflict lists.
pub const CONFLICT_DIFFERENCES_MAX: usize = 100;
pub const CONFLICT_NOTE_BYTES_MAX: usize = 4096;

/// Time for which the gateway keeps the state of an entity after its last advance (ORD-2).
pub const ORDER_TTL: Duration = Duration::from_secs(24 * 3600);
/// Longest such time that a route can set.
pub const ORDER_TTL_MAX: Duration = Duration::from_secs(400 * 86_400);
/// The name of an entity is a key in the store.
pub const ENTITY_BYTES_MAX: usize = 256;
/// Gaps of one entity that are tracked. Past the limit the gateway forgets the lowest gap first.
pub const ORDER_GAPS_MAX: usize = 32;
/// Numbers of one entity that are tracked as failed for good on routes that park. Past the limit the lowest
/// ones and the highest remain.
pub const ORDER_FAILED_MAX: usize = 32;
/// Messages of one entity that wait for a gap to fill, whatever limit the route sets (ORD-3).
pub const ORDER_WAITING_MAX: usize = 256;
/// Messages of one entity for which the gateway looks up the sender when a service asks for its ids.
pub const ENTITY_SENDERS_MAX: usize = 32;
/// Longest wait for a gap to fill. It must be shorter than the time for which the state is kept.
pub const ORDER_WAIT_SECONDS_MAX: u32 = 3600;
/// Message types that close an entity.
pub const ORDER_COMPLETIONS_MAX: usize = 16;

/// Entries of one generation of a node's memory of recent messages, one for each destination of a message.
pub const RECENT_MESSAGES_MAX: usize = 500_000;
/// Up to this many destinations a node remembers a message once for each. A message with more is remembered
/// once for all of them: a few such messages would otherwise push out all others. A new subscription gets the
/// next message.
pub const REMEMBERED_DESTINATIONS_MAX: usize = 16;
/// Reservations in the memory of recent messages, one for each message: as many as the intake holds, and as
/// many again that wait to enter it. A larger intake gets twice its size.
pub const RESERVED_MESSAGES_MAX: usize = 2 * INTAKE_MESSAGES_MAX;
/// Rounds in which copies of one message wait for the first copy, if the gateway refuses that one. The
/// remaining copies of the request then get the answer of the last round.
pub const COPY_ROUNDS_MAX: usize = 4;

/// Deliveries that one queue may hold before its routes answer `overloaded`.
pub const QUEUE_DEPTH_MAX: usize = 10_000_000;
/// Deliveries of one queue that may be in flight at the same time, as on SQS.
pub const QUEUE_IN_FLIGHT_MAX: usize = 120_000;
/// Deliveries that one receive call returns.
pub const RECEIVE_MESSAGES_MAX: usize = 10;
/// Longest wait of a receive call.
pub const RECEIVE_WAIT_MAX: Duration = Duration::from_secs(20);
/// Visibility timeout when the caller sets none.
pub const VISIBILITY_DEFAULT: Duration = Duration::from_secs(30);
/// Longest visibility timeout, as on SQS.
pub const VISIBILITY_MAX: Duration = Duration::from_secs(12 * 3600);
/// Receives before a delivery becomes a dead letter, when the route sets none.
pub const RECEIVES_DEFAULT: u32 = 5;
/// Most receives that a route can set.
pub const RECEIVES_MAX: u32 = 1000;
/// Subscriptions of one event type: one commit holds all deliveries of an event.
pub const SUBSCRIPTIONS_PER_TYPE_MAX: usize = 1000;
/// A delivery that waits in a queue for this long becomes a dead letter.
pub const QUEUE_RETENTION: Duration = Duration::from_secs(14 * 86_400);
/// Acknowledgements and extensions in one request.
pub const ACK_MESSAGES_MAX: usize = 500;

/// Age at which unread telemetry is deleted (TEL-4).
pub const TELEMETRY_RETENTION: Duration = Duration::from_secs(14 * 86_400);
/// Telemetry records of refusals that may wait for a commit.
pub const TELEMETRY_GATHERED_MAX: usize = 10_000;
/// Telemetry records with one source and reason that one gathering keeps; it counts the rest.
pub const TELEMETRY_PER_CAUSE_MAX: usize = 100;

/// Telemetry records that one request may scan for matches.
pub const TELEMETRY_LOOKED_AT_MAX: usize = 10 * PAGE_MAX;

/// Series of one metric, however many routes are registered (QUA-9).
pub const METRIC_SERIES_MAX: usize = 2_000;
/// Series of one metric for the routes of one tenant.
pub const METRIC_SERIES_PER_TENANT_MAX: usize = METRIC_SERIES_MAX / TENANT_PART;

/// Entries of one page of a list.
pub const PAGE_MAX: usize = 1000;
/// Payload bytes of one page of messages; many pages must fit in memory together.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Entries of a page when the caller sets none.
pub const PAGE_DEFAULT: usize = 100;
/// Rows that one sweep may delete before it lets other writers in.
pub const SWEEP_ROWS_MAX: usize = 2_000;

/// Lifetime of an access token (REG-7).
pub const TOKEN_LIFETIME: Duration = Duration::from_secs(600);
/// Largest difference between the clock of a workload's issuer and the node's clock.
pub const ASSERTION_LEEWAY: Duration = Duration::from_secs(30);
/// Longest lifetime of a workload's identity token that the gateway exchanges for an access token.
pub const ASSERTION_LIFETIME_MAX: Duration = Duration::from_secs(3600);
/// Lifetime of a personal token when the operator sets none (REG-9).
pub const PERSONAL_TOKEN_DAYS: u32 = 90;
/// Longest lifetime of a personal token.
pub const PERSONAL_TOKEN_DAYS_MAX: u32 = 365;
/// Verified tokens that a node remembers.
pub const TOKENS_REMEMBERED_MAX: usize = 50_000;
/// Failed authentications of one address in [`AUTH_FAILURES_WINDOW`]. The gateway then asks the caller to
/// wait (PIP-1).
pub const AUTH_FAILURES_MAX: u32 = 20;
/// Messages of one sender with a wrong signature in [`AUTH_FAILURES_WINDOW`]. The gateway then asks the
/// sender to wait (PIP-1). A sender with a wrong key thus sees more than a few refusals, and a flood of them
/// leaves no telemetry.
pub const SIGNATURE_FAILURES_MAX: u32 = 100;
/// Window of both failure counts.
pub const AUTH_FAILURES_WINDOW: Duration = Duration::from_secs(60);
/// Addresses whose failures are counted one by one.
pub const AUTH_CALLERS_MAX: usize = 10_000;
/// Changes that one request for the changelog may scan for those its caller may see.
pub const CHANGES_LOOKED_AT_MAX: usize = 10 * PAGE_MAX;
/// Changes in one registry transaction.
pub const REGISTRY_CHANGES_MAX: usize = 10_000;
/// After this time no commit rests on a revoked permission any more (REG-15, REG-17): five seconds of
/// registry age, plus the longest commit of a store.
pub const REVOCATION_SETTLED: Duration = Duration::from_secs(15);
/// Changes that one seal covers. The seal lists the digest of each, and readers load it as a whole.
pub const SEAL_CHANGES_MAX: usize = 256;
/// Seals of one page of a list.
pub const SEALS_PAGE_MAX: usize = 100;
/// Changes that the gateway reads to compare two versions of the registry, or to reconstruct one.
pub const PAST_CHANGES_MAX: usize = 100_000;
/// Grants (those to the same target first) and event types that a refusal compares with a name that is not
/// granted: a refusal must stay cheap.
pub const GRANTS_COMPARED_MAX: usize = 20;
/// Grants that the search for unexpired ones reads.
pub const GRANTS_LOOKED_THROUGH_MAX: usize = 1000;
/// Refusals of one request that suggest the nearest grants.
pub const NEAREST_REFUSALS_MAX: usize = 5;
/// Known names that are compared with an unknown name in a filter: a refusal must stay cheap.
pub const NAMES_COMPARED_MAX: usize = 1000;
/// Longest unknown name that is compared with known ones. The longest legal names are those of grants: two
/// services and a command.
pub const NAME_COMPARED_BYTES_MAX: usize = 512;
/// Nearest names that a refusal lists.
pub const NEAREST_NAMES_MAX: usize = 3;
/// Open grant requests of one tenant, including those to services that do not exist (REG-8).
pub const GRANT_REQUESTS_MAX: usize = 500;
/// A note: the reason that a person gives for an action.
pub const REASON_CHARS_MAX: usize = 1000;
/// How to reach the people of a tenant.
pub const CONTACT_CHARS_MAX: usize = 320;
/// Description of a service for people.
pub const DESCRIPTION_CHARS_MAX: usize = 1000;

/// Days between two keys of a service, when the service sets none (REG-10).
pub const KEY_DAYS: u32 = 30;
/// Days for which the previous key is accepted beside the current one, when the service sets none (REG-10).
pub const KEY_OVERLAP_DAYS: u32 = 7;
/// Longest time for which a key can be the current one.
pub const KEY_DAYS_MAX: u32 = 3_650;
/// Time for which the gateway keeps a key after it stops accepting it, so that a refusal can name the reason
/// to a sender that still signs with it.
pub const KEY_KEPT: Duration = Duration::from_secs(30 * 86_400);
/// Keys that are kept of one service, ended ones included. The gateway tries a webhook's signature against
/// each.
pub const KEYS_KEPT_MAX: usize = 16;
/// The gateway reports a key that ends within this time, if the owner seems unaware of the new key (REG-12).
pub const KEY_ENDS_SOON: Duration = Duration::from_secs(48 * 3600);
/// Expected interval at which a producer polls its configuration (REG-11).
pub const CONFIG_POLL: Duration = Duration::from_secs(12 * 3600);
/// An owner that has not polled for this long seems unaware of a new key (REG-12).
pub const CONFIG_POLL_MISSED: Duration = Duration::from_secs(24 * 3600);
/// The gateway records a poll, and the keys that it returned, at most this often for one client and version
/// (REG-11).
pub const CONFIG_POLL_NOTED: Duration = Duration::from_secs(60);
/// Signed requests of one service that a node remembers, to refuse a second use (REG-11). Each is remembered
/// for minutes, and this many instances may start in that time.
pub const SIGNED_REQUESTS_MAX: usize = 1_000;
/// Each node reports the use of one version of a previous key at most this often (REG-12).
pub const LEGACY_KEY_REPORTED: Duration = Duration::from_secs(3600);
/// Keys and clients whose reports a node remembers, to limit their rate.
pub const KEY_REPORTS_REMEMBERED_MAX: usize = 10_000;

/// Time between the latest end of a call and the end of its lease. The node commits the outcome in it.
pub const CALL_LEASE_MARGIN: Duration = Duration::from_millis(500);

/// Days for which a `ledger` claim stays hot, when the route sets none (CLM-15).
pub const HOT_DAYS: u32 = 400;
/// Records of one segment of the archive. To read one record back, a node reads all of them.
pub const ARCHIVE_RECORDS_MAX: usize = 500;
/// The archiver closes a segment at this many content bytes, whatever the size of the last record.
pub const ARCHIVE_SEGMENT_BYTES: usize = 4 * 1024 * 1024;
/// Largest segment, packed or unpacked: one message to very many destinations, with a stored response for
/// each.
pub const ARCHIVE_SEGMENT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Segments that a node reads back at the same time. Each is in memory as a whole.
pub const ARCHIVE_READS_AT_ONCE: usize = 4;
/// Bytes of segments that a node caches for a moment: concurrent readers mostly want the same segments.
pub const ARCHIVE_REMEMBERED_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Segments that the archiver writes before it checks that it is still the leader of its task.
pub const ARCHIVE_SEGMENTS_PER_ROUND: usize = 20;
/// Legal holds of one tenant in force at the same time. Every deletion checks each of them.
pub const HOLDS_PER_TENANT_MAX: usize = 1_000;
/// Longest time for which an attempt may be in progress without a sign of life from its worker.
pub const DEADLINE_SECONDS_MAX: u32 = 12 * 3600;
/// The longest pause between two attempts.
pub const BACKOFF_SECONDS_MAX: u32 = 12 * 3600;
/// Time for which a sender waits for the response of an HTTP processor, when it sets none.
pub const FOLLOW_USUAL: Duration = Duration::from_secs(10);
/// Longest such wait that a sender can set.
pub const FOLLOW_MAX: Duration = Duration::from_secs(60);
/// Senders on one node that wait for the outcome of their messages.
pub const FOLLOWERS_MAX: usize = 10_000;
/// Late reports that a node remembers as recorded.
pub const FENCED_REMEMBERED_MAX: usize = 10_000;
/// Ids with repeated arrivals, whose counts wait for a commit.
pub const REPEATS_GATHERED_MAX: usize = 10_000;
/// Log lines per second about new conflicts, and about failed attempts. The log has the count of the rest.
pub const FLOOD_LINES_MAX: u32 = 10;
/// One cause of failures gets at most one log line in this time.
pub const LOG_LINE_EVERY: Duration = Duration::from_secs(1);
/// Causes that are distinguished at one place in the code that logs. Further ones share a line.
pub const LOG_CAUSES_MAX: usize = 16;
/// Cause text of the shared line.
pub const LOG_OTHER_CAUSES: &str = "other causes";
/// Causes are compared by this many characters.
pub const LOG_CAUSE_CHARS_MAX: usize = 300;
/// Concurrent calls of processors and receivers for one queue of a node.
pub const CALLS_PER_QUEUE_MAX: usize = 64;
/// Concurrent calls of processors and receivers for all queues of a node. Half of them are divided among
/// tenants. Past the limit each queue may still have one call. Each call holds a connection and the bytes of
/// a message.
pub const CALLS_MAX: usize = 1024;
/// Names that are resolved concurrently for one kind of call. Each lookup occupies one of the 512 threads
/// that do all slow work of a node, until the machine's resolver gives up, even if no caller waits for it any
/// more.
pub const LOOKUPS_MAX: usize = 64;
/// Lookups reserved for names that resolved recently. The other lookups are for all other names.
pub const LOOKUPS_ANSWERING_MAX: usize = LOOKUPS_MAX / 2;
/// Lookups for the names of one tenant, in either half.
pub const LOOKUPS_PER_TENANT_MAX: usize = LOOKUPS_ANSWERING_MAX / 8;
/// Names of one tenant that a node remembers as recently resolved.
pub const NAMES_ANSWERING_PER_TENANT_MAX: usize = 256;
/// Names of all tenants that a node remembers as recently resolved.
pub const NAMES_ANSWERING_MAX: usize = 64 * NAMES_ANSWERING_PER_TENANT_MAX;
/// Response of a receiver to a push. The gateway keeps nothing of it.
pub const PUSH_ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Consecutive failed calls that open the circuit breaker of a target.
pub const BREAKER_FAILURES: u32 = 5;
/// First time for which an open circuit breaker stops calls. It doubles with each failed probe.
pub const BREAKER_PAUSE: Duration = Duration::from_secs(1);
/// Longest time for which an open circuit breaker stops calls.
pub const BREAKER_PAUSE_MAX: Duration = Duration::from_secs(60);
/// The reference of a result in the target's system, for example a journal entry.
pub const REFERENCE_BYTES_MAX: usize = 256;
/// A JSON pointer in the settings of a route.
pub const POINTER_BYTES_MAX: usize = 256;
/// Response of a processor. Larger responses belong in a store of the target.
pub const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// Levels of nesting that the gateway's documents add around a response: a batch, its results, an event, its
/// subscriptions, and one subscription.
pub const ANSWER_LEVELS_AROUND: usize = 5;
/// Most members that the gateway's documents add beside a response in an entry.
pub const ANSWER_MEMBERS_AROUND: usize = 40;
/// Content type of a response. A longer text is not a content type.
pub const CONTENT_TYPE_BYTES_MAX: usize = 256;
/// Characters that are kept of an attempt's error, for people.
pub const ERROR_CHARS_MAX: usize = 500;

/// The manifest of a snapshot lists its objects.
pub const SNAPSHOT_MANIFEST_BYTES_MAX: usize = 4 * 1024 * 1024;
/// An object of a snapshot, packed or unpacked. Several are in memory at the same time.
pub const SNAPSHOT_OBJECT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Unpacked bytes at which the writer begins the next object.
pub const SNAPSHOT_OBJECT_BYTES: usize = 4 * 1024 * 1024;
/// One entry of a snapshot. The longest texts that can be registered fit several times.
pub const SNAPSHOT_ENTRY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of all objects of a snapshot, unless the operator sets another limit.
pub const SNAPSHOT_BYTES_DEFAULT: u64 = 1024 * 1024 * 1024;
/// The gateway warns when a snapshot reaches this share of its byte limit (REG-22).
pub const SNAPSHOT_NEAR_LIMIT_PERCENT: u64 = 80;
/// Clocks may differ: a node treats a snapshot from up to this far in its future as made just now.
pub const SNAPSHOT_AHEAD_MAX: Duration = Duration::from_secs(60);

/// Interval of the log line about messages that pass a route unordered, so that a producer without numbers
/// cannot fill the log.
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
