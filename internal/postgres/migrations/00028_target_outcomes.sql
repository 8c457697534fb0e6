-- +goose Up

-- What the last delivery to each target and the last failed attempt came to, a row each. Rows are written at most once a second, so
-- that attempts do not wait for each other: a row may be a second older than the last attempt. Attempts of servers of older versions
-- are missing.
CREATE TABLE target_outcomes (
    target      uuid        NOT NULL,
    delivered   boolean     NOT NULL,
    at          timestamptz NOT NULL,
    publication uuid        NOT NULL,
    cause       text        NOT NULL, -- empty when delivered
    status_code integer     NOT NULL, -- of the target's answer, 0 without one
    message     text        NOT NULL,
    PRIMARY KEY (target, delivered)
) WITH (fillfactor = 50);
