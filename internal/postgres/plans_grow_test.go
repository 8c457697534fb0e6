package postgres

// grow adds n rows to each table behind the backs of all processes, without telling the planner. They belong to the very
// auctions and the campaign that commands work on, but are none that a process has to read: the rows of the auctions and the
// campaign themselves stay as they are.
func (s *scene) grow(n int) {
	s.t.Helper()
	first := s.grown + 1
	s.grown += n
	for _, sql := range []string{
		`INSERT INTO accounts (id, currency, available, held, version, created_at)
			SELECT 'extra-' || n, 'EUR', 1000000, 2 * n, 1, now() FROM generate_series($1::bigint, $2::bigint) AS n`,
		`INSERT INTO idempotency_keys (id, fingerprint, execution, status, body, created_at)
			SELECT sha256(n::text::bytea), sha256('f'), gen_random_uuid(), 201, '{}', now() FROM generate_series($1::bigint, $2::bigint) AS n`,
		`INSERT INTO hold_rows (id, account, amount, captured, status, expires_at, created_at)
			SELECT gen_random_uuid(), 'extra-' || n, 1, 0, 'open', now() + interval '1 day', now() FROM generate_series($1::bigint, $2::bigint) AS n`,
	} {
		s.run(sql, first, s.grown)
	}
	for _, id := range []any{s.unique, s.open} {
		s.run(`WITH bids AS (SELECT gen_random_uuid() AS hold, n FROM generate_series($1::bigint, $2::bigint) AS n), held AS (
				INSERT INTO hold_rows (id, account, captured, status, created_at, owner)
				SELECT hold, 'extra-' || n, 0, 'open', now(), 'auction:' || $3::uuid FROM bids
			), history AS (
				INSERT INTO auction_bids (auction, seq, account, amount, previous_amount, round, rank, at, hold)
				SELECT $3, -n, 'extra-' || n, n, 0, 1, 1, now(), hold FROM bids
			)
			INSERT INTO auction_standing (auction, account, amount, unique_amount, round, seq, at, hold, active)
			SELECT $3, 'extra-' || n, n, CASE WHEN $4::boolean THEN n END, 1, 1, now(), hold, true FROM bids`, first, s.grown, id, id == any(s.unique))
	}
	for _, sql := range []string{
		`INSERT INTO auction_events (auction, seq, type, at, data) SELECT $3, -n, 'x', now(), '{}' FROM generate_series($1::bigint, $2::bigint) AS n`,
		`INSERT INTO auctions (id, title, status, currency, seller, current_round, min_bid, min_increment, snipe_window, snipe_extension, snipe_max,
				cooldown, unique_amounts, total_bids, seq, version, revision, created_at, started_at, ended_at)
			SELECT gen_random_uuid(), 'x', 'completed', 'EUR', 'seller', 1, 1, 1, 0, 0, 0, 0, true, 0, 0, 1, $3, now(), now(), now()
			FROM generate_series($1::bigint, $2::bigint) AS n`,
	} {
		s.run(sql, first, s.grown, s.unique)
	}
	s.run(`WITH made AS (
			INSERT INTO campaigns (id, name, status, draw_mode, currency, beneficiary, escrow, total_positions, sold_positions, commitment, version, created_at)
			SELECT gen_random_uuid(), 'x', 'pending', 'instant', 'EUR', 'seller', 'x' || n, 1, 0, sha256('c'), 1, now()
			FROM generate_series($1::bigint, $2::bigint) AS n RETURNING id
		) INSERT INTO campaign_layers (campaign, layer, positions, price, sold) SELECT id, 1, 1, 1, 0 FROM made`, first, s.grown)
	s.run(`INSERT INTO purchases (campaign, seq, id, account, layer, number, ordinal, price, transfer, at)
		SELECT $3, -n, gen_random_uuid(), 'extra-' || n, 1, 1, 1000000 + n, 1, gen_random_uuid(), now() FROM generate_series($1::integer, $2::integer) AS n`,
		first, s.grown, s.campaign)
	s.run(`WITH made AS (
			INSERT INTO publications (id, target, status, payload, jitter, due_at, execution_version, attempts, spent, last_error, external_id, published_at, created_at)
			SELECT gen_random_uuid(), t.id, CASE WHEN n % 2 = 0 THEN 'published' ELSE 'scheduled' END, '1', 0, now() + interval '1 day', 1, 1, 0, '', '',
				CASE WHEN n % 2 = 0 THEN now() END, now()
			FROM generate_series($1::bigint, $2::bigint) AS n, (SELECT id FROM targets LIMIT 1) AS t RETURNING id
		) INSERT INTO publication_attempts (publication, version, lock_id, started_at) SELECT id, 1, gen_random_uuid(), now() FROM made`, first, s.grown)
	s.run(`INSERT INTO items (id, status, due) SELECT n, CASE WHEN n % 2 = 0 THEN 'ready' ELSE 'done' END, now() + interval '1 day'
		FROM generate_series($1::bigint, $2::bigint) AS n`, first, s.grown)
	s.run(`WITH held AS (
			INSERT INTO lock_grants (id, owner, keys, tokens, ttl_us, hold_us, granted_at, expires_at)
			SELECT gen_random_uuid(), 'extra-' || n, ARRAY['extra-' || n], ARRAY[1], 1000000, 0, now(), now() + interval '1 day'
			FROM generate_series($1::bigint, $2::bigint) AS n RETURNING id, keys
		) INSERT INTO lock_keys (key, token, holder) SELECT keys[1], 1, id FROM held`, first, s.grown)
	s.run(`WITH waiting AS (
			INSERT INTO lock_waiters (id, owner, keys, ttl_us, hold_us, since, alive_until)
			SELECT gen_random_uuid(), 'waiter-' || n, ARRAY['extra-' || n], 1000000, 0, now(), now() + interval '1 day'
			FROM generate_series($1::bigint, $2::bigint) AS n RETURNING id, ticket, keys
		) INSERT INTO lock_queue (key, ticket, waiter) SELECT keys[1], ticket, id FROM waiting`, first, s.grown)
	s.run(`INSERT INTO lock_fences (resource, token) SELECT 'extra-' || n, 1 FROM generate_series($1::bigint, $2::bigint) AS n`, first, s.grown)
}
