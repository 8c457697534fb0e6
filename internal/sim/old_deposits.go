package sim

// OldDeposits is a statement that makes a ledger as large as one that is closed and recounted, and not counted as a whole whenever somebody
// asks: deposits with long memos, a thousand on each of twelve accounts.
const OldDeposits = `
	WITH numbers AS (SELECT i, 'old-' || lpad((i % 12)::text, 2, '0') AS account,
			(lpad(to_hex(1700000000000 + i), 12, '0') || '70008000000000000000')::uuid AS transfer,
			(lpad(to_hex(1700000000000 + i), 12, '0') || '70018000000000000000')::uuid AS id,
			to_timestamp(1700000000 + i / 1000.0) AS at, repeat('m', 400) AS memo
		FROM generate_series(0, 11999) AS i),
	moved AS (INSERT INTO transfers SELECT transfer, 'deposit', 'outside/SIM', account, 5, 'SIM', 'completed', '', memo, at FROM numbers),
	opened AS (INSERT INTO accounts SELECT account, 'SIM', 5 * count(*), 0, count(*), min(at) FROM numbers GROUP BY account),
	paid AS (INSERT INTO entries SELECT 'outside/SIM', id, 0, transfer, -5, 'SIM', at, memo FROM numbers)
	INSERT INTO entries SELECT account, id, i / 12 + 1, transfer, 5, 'SIM', at, memo FROM numbers`
