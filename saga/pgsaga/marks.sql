-- What became of a step that had its effect in this database, decided once: the row commits with the effect, or, where the
-- step is refused, instead of it. The log may be in another database. gid is that of the prepared transaction, if any.
CREATE TABLE saga_marks (
    saga    uuid        NOT NULL,
    step    text        NOT NULL,
    outcome text        NOT NULL CHECK (outcome IN ('done', 'refused')),
    reason  text        NOT NULL,
    result  text        NOT NULL,
    gid     text,
    at      timestamptz NOT NULL,
    PRIMARY KEY (saga, step)
);
