-- +goose Up

-- Subscriptions deliver the events of topics to a target. A topic is a name such as auction:ID, or auction:* for all of a kind. types is
-- empty where events of all types are delivered. A deleted subscription stays, so that the key that deleted it goes on telling so.
CREATE TABLE subscriptions (
    id            uuid PRIMARY KEY,
    number        bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- the order of lists
    name          text COLLATE "C" NOT NULL,
    target        uuid        NOT NULL REFERENCES targets (id),
    topics        text[]      NOT NULL CHECK (cardinality(topics) > 0),
    types         text[]      NOT NULL,
    envelope      text        NOT NULL CHECK (envelope IN ('plain', 'cloudevents')),
    refusals      integer     NOT NULL DEFAULT 0 CHECK (refusals >= 0), -- permanent ones in a row
    paused_at     timestamptz,
    paused_reason text        NOT NULL DEFAULT '' CHECK (paused_reason IN ('', 'request', 'refused')),
    created_at    timestamptz NOT NULL,
    deleted_at    timestamptz,
    CHECK ((paused_at IS NULL) = (paused_reason = ''))
);
CREATE UNIQUE INDEX subscriptions_name ON subscriptions (name) WHERE deleted_at IS NULL;

-- How far a subscription has come with each topic. Without a row nothing of the topic was delivered, and nothing was passed over. seq
-- is the number of the last event that was delivered or passed over; term is that of the leader that wrote the row last. attempts counts
-- those of the event after seq that have failed.
CREATE TABLE subscription_topics (
    subscription uuid    NOT NULL REFERENCES subscriptions (id),
    topic        text COLLATE "C" NOT NULL,
    seq          bigint  NOT NULL CHECK (seq >= 0),
    term         bigint  NOT NULL DEFAULT 0,
    attempts     integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    retry_at     timestamptz,                     -- nothing is sent before
    stopped      boolean NOT NULL DEFAULT false,  -- nothing is sent until somebody says from where
    last_error   text    NOT NULL DEFAULT '',     -- of the event after seq
    last_cause   text    NOT NULL DEFAULT '',
    status_code  integer NOT NULL DEFAULT 0,      -- of the answer to it, 0 without one
    delivered_at timestamptz,
    PRIMARY KEY (subscription, topic)
) WITH (fillfactor = 50);
