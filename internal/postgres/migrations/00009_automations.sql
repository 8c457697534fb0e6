-- +goose Up

-- Rules that take drafts of a target and schedule them. A rule has either times of the day on days of the week, in a time
-- zone, or an interval from an anchor. next_at is when it fires next, null once it fires no more.
CREATE TABLE automations (
    id          uuid PRIMARY KEY,
    number      bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- the order of lists
    name        text COLLATE "C" NOT NULL UNIQUE,
    target      uuid        NOT NULL REFERENCES targets (id),
    status      text        NOT NULL CHECK (status IN ('active', 'paused', 'cancelled')),
    weekdays    smallint[]  NOT NULL, -- 0: Sunday
    times       integer[]   NOT NULL, -- seconds after midnight
    time_zone   text        NOT NULL,
    every       bigint      NOT NULL CHECK (every >= 0), -- microseconds
    starts_at   timestamptz NOT NULL,
    pick        text        NOT NULL CHECK (pick IN ('random', 'first', 'last')),
    daily_quota integer     NOT NULL CHECK (daily_quota >= 0), -- 0: none
    jitter      bigint      NOT NULL CHECK (jitter BETWEEN 0 AND 300000000), -- microseconds
    next_at     timestamptz,
    created_at  timestamptz NOT NULL,
    CHECK ((status = 'active') = (next_at IS NOT NULL)),
    CHECK ((every = 0) = (cardinality(times) > 0))
);
CREATE INDEX automations_due ON automations (next_at) WHERE status = 'active';

-- One row for each time that a rule has fired: the key is what makes any number of processes fire it once. skipped counts
-- the times before it that nobody was there for.
CREATE TABLE automation_firings (
    automation    uuid        NOT NULL REFERENCES automations (id),
    scheduled_for timestamptz NOT NULL,
    number        bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- the order of lists
    fired_at      timestamptz NOT NULL,
    outcome       text        NOT NULL CHECK (outcome IN ('scheduled', 'no_draft', 'quota_reached')),
    publication   uuid        REFERENCES publications (id),
    skipped       integer     NOT NULL CHECK (skipped >= 0),
    PRIMARY KEY (automation, scheduled_for),
    CHECK ((outcome = 'scheduled') = (publication IS NOT NULL))
);
CREATE INDEX automation_firings_listed ON automation_firings (automation, number);
CREATE INDEX automation_firings_of_day ON automation_firings (automation, fired_at) WHERE outcome = 'scheduled';

-- What a rule picks from, in the order in which it was made.
CREATE INDEX publications_drafts ON publications (target, number) WHERE status = 'draft';
