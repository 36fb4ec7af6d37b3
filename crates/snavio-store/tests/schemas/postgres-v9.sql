-- Layout 9 of the database, with a message that waits; as pg_dump --inserts wrote it, without its commands to psql.
--
-- PostgreSQL database dump
--


-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: take_block(integer); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.take_block(knows integer) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    oldest integer;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1936613750, 2);
    SELECT oldest_reader INTO oldest FROM layout;
    IF oldest > knows THEN
        RAISE EXCEPTION 'the database serves nodes from layout % on; this one knows %', oldest, knows
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN nextval('serial');
END
$$;


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: answer; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.answer (
    delivery bigint NOT NULL,
    status integer NOT NULL,
    content_type text COLLATE pg_catalog."C",
    body bytea NOT NULL,
    check_value bigint NOT NULL
);


--
-- Name: audit; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.audit (
    seq bigint NOT NULL,
    at bigint NOT NULL,
    who text NOT NULL COLLATE pg_catalog."C",
    why text NOT NULL COLLATE pg_catalog."C",
    action text NOT NULL COLLATE pg_catalog."C",
    object text NOT NULL COLLATE pg_catalog."C",
    outcome text NOT NULL COLLATE pg_catalog."C",
    check_value bigint NOT NULL
);


--
-- Name: batch; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.batch (
    nonce uuid NOT NULL,
    attempt integer NOT NULL,
    base bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');


--
-- Name: claim; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.claim (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant text NOT NULL COLLATE pg_catalog."C",
    destination text NOT NULL COLLATE pg_catalog."C",
    source text NOT NULL COLLATE pg_catalog."C",
    message bigint NOT NULL,
    first_seen_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    check_value bigint NOT NULL,
    delivery bigint,
    status smallint DEFAULT 1 NOT NULL,
    fence bigint,
    attempts integer DEFAULT 0 NOT NULL,
    ended_at bigint,
    reference text COLLATE pg_catalog."C",
    error text COLLATE pg_catalog."C",
    repeats bigint DEFAULT 0 NOT NULL,
    last_seen_at bigint,
    hot_until bigint,
    archived_at bigint,
    archive text COLLATE pg_catalog."C",
    erased_at bigint
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');


--
-- Name: delivery; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.delivery (
    id bigint NOT NULL,
    message bigint NOT NULL,
    destination text NOT NULL COLLATE pg_catalog."C",
    queue text NOT NULL COLLATE pg_catalog."C",
    dead_letter_queue text NOT NULL COLLATE pg_catalog."C",
    queued_at bigint NOT NULL,
    receives integer NOT NULL,
    receives_max integer NOT NULL,
    visible_at bigint NOT NULL,
    held text COLLATE pg_catalog."C",
    fence bigint,
    tracking smallint DEFAULT 0 NOT NULL,
    lane text COLLATE pg_catalog."C",
    lane_number bigint,
    lane_kind smallint,
    lane_parks bigint,
    waits boolean DEFAULT false NOT NULL,
    CONSTRAINT delivery_held_check CHECK ((held = ANY (ARRAY['leased'::text, 'delayed'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_cost_delay='0', fillfactor='80');


--
-- Name: message; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.message (
    seq bigint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    source text NOT NULL COLLATE pg_catalog."C",
    target text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    signed_target text NOT NULL COLLATE pg_catalog."C",
    sent_at text NOT NULL COLLATE pg_catalog."C",
    key_version text NOT NULL COLLATE pg_catalog."C",
    signature text NOT NULL COLLATE pg_catalog."C",
    correlation_id text NOT NULL COLLATE pg_catalog."C",
    traceparent text NOT NULL COLLATE pg_catalog."C",
    received_at bigint NOT NULL,
    settled_at bigint NOT NULL,
    registry_version bigint NOT NULL,
    hash_version integer NOT NULL,
    domain_hash bytea NOT NULL,
    path text NOT NULL COLLATE pg_catalog."C",
    payload bytea NOT NULL,
    check_value bigint NOT NULL,
    event text COLLATE pg_catalog."C"
);


--
-- Name: original; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.original (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant text NOT NULL COLLATE pg_catalog."C",
    source text NOT NULL COLLATE pg_catalog."C",
    message bigint NOT NULL,
    hash_version integer NOT NULL,
    hash bytea NOT NULL,
    expires_at bigint NOT NULL,
    check_value bigint NOT NULL
);


--
-- Name: claims; Type: VIEW; Schema: public; Owner: -
--

CREATE VIEW public.claims AS
 SELECT claim.tenant,
    claim.id AS event_id,
    claim.destination,
    claim.source,
    encode(COALESCE(message.domain_hash, original.hash), 'hex'::text) AS domain_payload_hash,
    COALESCE(message.hash_version, original.hash_version) AS hash_version,
        CASE
            CASE
                WHEN ((claim.status = 2) AND (delivery.held = 'leased'::text) AND (delivery.fence IS NOT NULL) AND ((delivery.visible_at)::numeric > (EXTRACT(epoch FROM clock_timestamp()) * (1000)::numeric))) THEN 0
                ELSE (claim.status)::integer
            END
            WHEN 0 THEN 'PROCESSING'::text
            WHEN 1 THEN 'COMPLETED'::text
            WHEN 4 THEN 'IN_DOUBT'::text
            ELSE 'FAILED'::text
        END AS status,
    COALESCE(delivery.fence, claim.fence) AS fence,
    answer.status AS response_status,
    answer.body AS response_payload,
    claim.reference AS gl_posting_reference,
    message.correlation_id,
    COALESCE(delivery.receives, claim.attempts) AS attempts,
    to_timestamp((((claim.first_seen_at)::numeric / 1000.0))::double precision) AS first_seen_at,
    to_timestamp((((COALESCE(claim.last_seen_at, claim.first_seen_at))::numeric / 1000.0))::double precision) AS last_seen_at,
    (claim.repeats + 1) AS seen,
    to_timestamp((((delivery.visible_at)::numeric / 1000.0))::double precision) AS deadline,
    to_timestamp((((claim.expires_at)::numeric / 1000.0))::double precision) AS expires_at,
    to_timestamp((((claim.archived_at)::numeric / 1000.0))::double precision) AS archived_at,
    claim.archive AS archive_pointer,
    to_timestamp((((claim.erased_at)::numeric / 1000.0))::double precision) AS erased_at
   FROM ((((public.claim
     LEFT JOIN public.message ON ((message.seq = claim.message)))
     LEFT JOIN public.original ON (((original.id = claim.id) AND (original.tenant = claim.tenant))))
     LEFT JOIN public.answer ON ((answer.delivery = claim.delivery)))
     LEFT JOIN public.delivery ON (((delivery.id = claim.delivery) AND (delivery.held = 'leased'::text) AND (claim.status = ANY (ARRAY[0, 2])))));


--
-- Name: conflict; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.conflict (
    seq bigint NOT NULL,
    place integer NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    owner text NOT NULL COLLATE pg_catalog."C",
    event_id text NOT NULL COLLATE pg_catalog."C",
    destination text NOT NULL COLLATE pg_catalog."C",
    source text NOT NULL COLLATE pg_catalog."C",
    original bigint NOT NULL,
    original_hash bytea NOT NULL,
    hash bytea NOT NULL,
    dead_letter bigint NOT NULL,
    flagged_at bigint NOT NULL,
    last_seen_at bigint NOT NULL,
    count bigint NOT NULL,
    state text NOT NULL COLLATE pg_catalog."C",
    notes text NOT NULL COLLATE pg_catalog."C",
    compensating text COLLATE pg_catalog."C",
    check_value bigint NOT NULL
);


--
-- Name: dead_letter; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.dead_letter (
    id bigint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    message bigint NOT NULL,
    destination text NOT NULL COLLATE pg_catalog."C",
    queue text NOT NULL COLLATE pg_catalog."C",
    dead_letter_queue text NOT NULL COLLATE pg_catalog."C",
    queued_at bigint NOT NULL,
    receives integer NOT NULL,
    receives_max integer NOT NULL,
    reason text NOT NULL COLLATE pg_catalog."C",
    dead_at bigint NOT NULL,
    tracking smallint DEFAULT 0 NOT NULL,
    lane text COLLATE pg_catalog."C",
    lane_number bigint,
    lane_kind smallint,
    lane_parks bigint
);


--
-- Name: entity; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.entity (
    lane text NOT NULL COLLATE pg_catalog."C",
    body text NOT NULL COLLATE pg_catalog."C",
    expires_at bigint NOT NULL,
    wait_ends_at bigint,
    parked_at bigint,
    check_value bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0', fillfactor='80');


--
-- Name: fence; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.fence
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    MAXVALUE 9007199254740991
    CACHE 1;


--
-- Name: hold; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.hold (
    seq bigint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    event_id text COLLATE pg_catalog."C",
    destination text COLLATE pg_catalog."C",
    at bigint NOT NULL,
    who text NOT NULL COLLATE pg_catalog."C",
    why text NOT NULL COLLATE pg_catalog."C",
    lifted_at bigint,
    lifted_by text COLLATE pg_catalog."C",
    lifted_why text COLLATE pg_catalog."C",
    check_value bigint NOT NULL
);


--
-- Name: layout; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.layout (
    single boolean DEFAULT true NOT NULL,
    version integer NOT NULL,
    oldest_reader integer NOT NULL,
    CONSTRAINT layout_single_check CHECK (single)
);


--
-- Name: lease; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.lease (
    task text NOT NULL COLLATE pg_catalog."C",
    node text NOT NULL COLLATE pg_catalog."C",
    until timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_threshold='200', fillfactor='50');


--
-- Name: node; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.node (
    id text NOT NULL COLLATE pg_catalog."C",
    address text NOT NULL COLLATE pg_catalog."C",
    software text NOT NULL COLLATE pg_catalog."C",
    registry_version bigint NOT NULL,
    waiting bigint NOT NULL,
    draining boolean NOT NULL,
    started_at bigint NOT NULL,
    seen_at timestamp with time zone DEFAULT now() NOT NULL,
    now_at bigint,
    layout integer DEFAULT 1 NOT NULL
)
WITH (autovacuum_vacuum_threshold='200', fillfactor='50');


--
-- Name: note; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.note (
    name text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL COLLATE pg_catalog."C"
);


--
-- Name: pin; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.pin (
    name text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL COLLATE pg_catalog."C"
);


--
-- Name: refinery_schema_history; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.refinery_schema_history (
    version integer NOT NULL,
    name character varying(255),
    applied_on character varying(255),
    checksum character varying(255)
);


--
-- Name: registry_change; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.registry_change (
    version bigint NOT NULL,
    at bigint NOT NULL,
    who text NOT NULL COLLATE pg_catalog."C",
    why text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    before text COLLATE pg_catalog."C",
    after text COLLATE pg_catalog."C"
);


--
-- Name: registry_entry; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.registry_entry (
    kind text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    body text NOT NULL COLLATE pg_catalog."C"
);


--
-- Name: registry_version; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.registry_version (
    single boolean DEFAULT true NOT NULL,
    version bigint NOT NULL,
    CONSTRAINT registry_version_single_check CHECK (single)
);


--
-- Name: seal; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.seal (
    number bigint NOT NULL,
    first_version bigint NOT NULL,
    last_version bigint NOT NULL,
    at bigint NOT NULL,
    head bytea NOT NULL,
    signature bytea NOT NULL
);


--
-- Name: segment; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.segment (
    object text NOT NULL COLLATE pg_catalog."C",
    state smallint NOT NULL,
    begun_at bigint NOT NULL,
    records bigint NOT NULL,
    expires_at bigint NOT NULL
);


--
-- Name: serial; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.serial
    START WITH 2048
    INCREMENT BY 2048
    MINVALUE 2048
    MAXVALUE 9007199254738944
    CACHE 1;


--
-- Name: telemetry; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.telemetry (
    tenant text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    at bigint NOT NULL,
    source text COLLATE pg_catalog."C",
    body text NOT NULL COLLATE pg_catalog."C"
);


--
-- Data for Name: answer; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: audit; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.audit VALUES (4099, 1794731400000, 'operator', 'naïve ☃', 'queue.purge', 'acme/nobody', '0 deliveries deleted', 2241237957);


--
-- Data for Name: batch; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: claim; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.claim VALUES ('old', 'acme', 'acme/bot:pay', 'acme/billing', 4097, 1794731400000, 1794731700000, 1172450530, NULL, 1, NULL, 0, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL);


--
-- Data for Name: conflict; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: dead_letter; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: delivery; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.delivery VALUES (4098, 4097, 'acme/bot:pay', 'acme/pay', 'acme/dead', 1794731400000, 1, 3, 1794731400000, 'leased', 7, 0, NULL, NULL, NULL, NULL, false);


--
-- Data for Name: entity; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: hold; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: layout; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.layout VALUES (true, 9, 8);


--
-- Data for Name: lease; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: message; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.message VALUES (4097, 'acme', 'old', 'acme/billing', 'acme/bot', 'pay', 'bot', '2026-11-15T08:30:00Z', 'hmac-v1', 'abababababababababababababababababababababababababababababababab', '07070707070707070707070707070707', '00-07070707070707070707070707070707-0707070707070707-01', 1794731400000, 1794731400000, 5, 1, '\x0909090909090909090909090909090909090909090909090909090909090909', 'slow', '\x7b20226f66223a20226f6c6422207d', 3585139788, NULL);


--
-- Data for Name: node; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: note; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: original; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: pin; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.pin VALUES ('platform_key', '0123456789abcdef');


--
-- Data for Name: refinery_schema_history; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.refinery_schema_history VALUES (1, 'first', '2026-11-15T08:30:00Z', '9927950390526210466');
INSERT INTO public.refinery_schema_history VALUES (2, 'members', '2026-11-15T18:10:29.701523448Z', '6904547532804836649');
INSERT INTO public.refinery_schema_history VALUES (3, 'evidence', '2026-11-15T18:31:25.947961647Z', '13221191539607872836');
INSERT INTO public.refinery_schema_history VALUES (4, 'meanings', '2026-11-15T22:51:00.000000000Z', '14231411374773831993');
INSERT INTO public.refinery_schema_history VALUES (5, 'processing', '2026-11-16T01:47:31.985355088Z', '8904679696375461007');
INSERT INTO public.refinery_schema_history VALUES (6, 'archive', '2026-11-16T02:30:28.028304609Z', '2950222163499685415');
INSERT INTO public.refinery_schema_history VALUES (7, 'order', '2026-11-16T08:27:44.143964381Z', '5217441601139290683');
INSERT INTO public.refinery_schema_history VALUES (8, 'claims_view', '2026-11-16T15:34:09.629647379Z', '5712654680450744075');
INSERT INTO public.refinery_schema_history VALUES (9, 'claim_status', '2026-11-19T20:27:03.435256181Z', '18383193707182296819');


--
-- Data for Name: registry_change; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: registry_entry; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: registry_version; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.registry_version VALUES (true, 0);


--
-- Data for Name: seal; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: segment; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: telemetry; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Name: fence; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.fence', 7, true);


--
-- Name: serial; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.serial', 4096, true);


--
-- Name: answer answer_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.answer
    ADD CONSTRAINT answer_pkey PRIMARY KEY (delivery);


--
-- Name: audit audit_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (seq);


--
-- Name: batch batch_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.batch
    ADD CONSTRAINT batch_pkey PRIMARY KEY (nonce);


--
-- Name: claim claim_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.claim
    ADD CONSTRAINT claim_pkey PRIMARY KEY (id, tenant, destination);


--
-- Name: conflict conflict_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.conflict
    ADD CONSTRAINT conflict_pkey PRIMARY KEY (seq);


--
-- Name: dead_letter dead_letter_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.dead_letter
    ADD CONSTRAINT dead_letter_pkey PRIMARY KEY (id);


--
-- Name: delivery delivery_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.delivery
    ADD CONSTRAINT delivery_pkey PRIMARY KEY (id);


--
-- Name: entity entity_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.entity
    ADD CONSTRAINT entity_pkey PRIMARY KEY (lane);


--
-- Name: hold hold_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.hold
    ADD CONSTRAINT hold_pkey PRIMARY KEY (seq);


--
-- Name: layout layout_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.layout
    ADD CONSTRAINT layout_pkey PRIMARY KEY (single);


--
-- Name: lease lease_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.lease
    ADD CONSTRAINT lease_pkey PRIMARY KEY (task);


--
-- Name: message message_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.message
    ADD CONSTRAINT message_pkey PRIMARY KEY (seq);


--
-- Name: node node_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.node
    ADD CONSTRAINT node_pkey PRIMARY KEY (id);


--
-- Name: note note_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.note
    ADD CONSTRAINT note_pkey PRIMARY KEY (name);


--
-- Name: original original_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.original
    ADD CONSTRAINT original_pkey PRIMARY KEY (id, tenant);


--
-- Name: pin pin_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.pin
    ADD CONSTRAINT pin_pkey PRIMARY KEY (name);


--
-- Name: refinery_schema_history refinery_schema_history_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.refinery_schema_history
    ADD CONSTRAINT refinery_schema_history_pkey PRIMARY KEY (version);


--
-- Name: registry_change registry_change_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.registry_change
    ADD CONSTRAINT registry_change_pkey PRIMARY KEY (version);


--
-- Name: registry_entry registry_entry_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.registry_entry
    ADD CONSTRAINT registry_entry_pkey PRIMARY KEY (kind, name);


--
-- Name: registry_version registry_version_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.registry_version
    ADD CONSTRAINT registry_version_pkey PRIMARY KEY (single);


--
-- Name: seal seal_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.seal
    ADD CONSTRAINT seal_pkey PRIMARY KEY (number);


--
-- Name: segment segment_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.segment
    ADD CONSTRAINT segment_pkey PRIMARY KEY (object);


--
-- Name: telemetry telemetry_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.telemetry
    ADD CONSTRAINT telemetry_pkey PRIMARY KEY (tenant, seq);


--
-- Name: batch_by_age; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX batch_by_age ON public.batch USING btree (at);


--
-- Name: claim_archived; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX claim_archived ON public.claim USING btree (archive) WHERE (archive IS NOT NULL);


--
-- Name: claim_by_expiry; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX claim_by_expiry ON public.claim USING btree (expires_at) WHERE (status <> ALL (ARRAY[0, 2, 4]));


--
-- Name: claim_cooling; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX claim_cooling ON public.claim USING btree (hot_until, message) WHERE ((hot_until IS NOT NULL) AND (archived_at IS NULL));


--
-- Name: claim_of_delivery; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX claim_of_delivery ON public.claim USING btree (delivery) WHERE (delivery IS NOT NULL);


--
-- Name: claim_open; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX claim_open ON public.claim USING btree (status, message) WHERE (status <> 1);


--
-- Name: conflict_of_id; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX conflict_of_id ON public.conflict USING btree (event_id, tenant, place);


--
-- Name: conflict_of_owner; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX conflict_of_owner ON public.conflict USING btree (owner, seq);


--
-- Name: conflict_of_source; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX conflict_of_source ON public.conflict USING btree (source);


--
-- Name: conflict_open; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX conflict_open ON public.conflict USING btree (owner) WHERE (state = ANY (ARRAY['OPEN'::text, 'TRIAGED'::text]));


--
-- Name: dead_letter_of_queue; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX dead_letter_of_queue ON public.dead_letter USING btree (dead_letter_queue, id);


--
-- Name: dead_letter_of_tenant; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX dead_letter_of_tenant ON public.dead_letter USING btree (tenant, id);


--
-- Name: delivery_by_age; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX delivery_by_age ON public.delivery USING btree (queued_at);


--
-- Name: delivery_by_visibility; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX delivery_by_visibility ON public.delivery USING btree (queue, visible_at, id);


--
-- Name: delivery_in_front; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX delivery_in_front ON public.delivery USING btree (lane) WHERE ((lane IS NOT NULL) AND (visible_at < '9223372036854775807'::bigint));


--
-- Name: delivery_in_lane; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX delivery_in_lane ON public.delivery USING btree (lane, lane_number, id) WHERE (lane IS NOT NULL);


--
-- Name: delivery_lapsing; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX delivery_lapsing ON public.delivery USING btree (visible_at) WHERE ((tracking > 0) AND (held = 'leased'::text));


--
-- Name: delivery_spent; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX delivery_spent ON public.delivery USING btree (visible_at) WHERE (receives >= receives_max);


--
-- Name: entity_by_expiry; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX entity_by_expiry ON public.entity USING btree (expires_at) WHERE ((wait_ends_at IS NULL) AND (parked_at IS NULL));


--
-- Name: entity_waiting; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX entity_waiting ON public.entity USING btree (wait_ends_at) WHERE (wait_ends_at IS NOT NULL);


--
-- Name: hold_in_force; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX hold_in_force ON public.hold USING btree (tenant) WHERE (lifted_at IS NULL);


--
-- Name: message_of_tenant; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX message_of_tenant ON public.message USING btree (tenant, seq);


--
-- Name: original_by_expiry; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX original_by_expiry ON public.original USING btree (expires_at);


--
-- Name: segment_by_expiry; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX segment_by_expiry ON public.segment USING btree (expires_at);


--
-- Name: segment_unsettled; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX segment_unsettled ON public.segment USING btree (begun_at) WHERE (state <> 1);


--
-- Name: telemetry_by_age; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX telemetry_by_age ON public.telemetry USING btree (at);


--
-- PostgreSQL database dump complete
--


