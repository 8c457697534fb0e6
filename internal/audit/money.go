package audit

func moneyChecks() []check {
	return []check{
		{guarantee: Money, promise: "the entries of every transfer sum to zero per currency", sql: `
			SELECT format('transfer %s: entries sum to %s %s', transfer, sum(amount), currency)
			FROM entries GROUP BY transfer, currency HAVING sum(amount) <> 0`},
		{guarantee: Money, promise: "a completed transfer has exactly its two entries", sql: `
			SELECT format('transfer %s (%s, %s %s from %s to %s) has %s entries', t.id, t.kind, t.amount, t.currency,
			              t.source, t.destination, count(e.id))
			FROM transfers t LEFT JOIN entries e ON e.transfer = t.id
			WHERE t.status = 'completed'
			GROUP BY t.id
			HAVING count(e.id) <> 2
			    OR count(*) FILTER (WHERE e.account = t.source AND e.amount = -t.amount AND e.currency = t.currency) <> 1
			    OR count(*) FILTER (WHERE e.account = t.destination AND e.amount = t.amount AND e.currency = t.currency) <> 1`},
		{guarantee: Money, promise: "no entry without a completed transfer", sql: `
			SELECT format('entry %s of account %s: transfer %s is %s', e.id, e.account, e.transfer, coalesce(t.status, 'absent'))
			FROM entries e LEFT JOIN transfers t ON t.id = e.transfer
			WHERE t.status IS DISTINCT FROM 'completed'`},
		{guarantee: Money, promise: "a failed transfer says why", sql: `
			SELECT format('transfer %s failed without a reason', id) FROM transfers WHERE status = 'failed' AND reason = ''`},
		{guarantee: Money, promise: "an account has one row", sql: `SELECT format('account %s has %s', id, count(*)) FROM accounts GROUP BY id HAVING count(*) > 1`},
		{guarantee: Money, promise: "an account's balance is the sum of its entries", sql: `
			SELECT format('account %s: available %s + held %s, entries sum to %s', a.id, a.available, a.held, coalesce(e.total, 0))
			FROM accounts a LEFT JOIN (SELECT account, sum(amount) AS total FROM entries GROUP BY account) e ON e.account = a.id
			WHERE a.available::numeric + a.held <> coalesce(e.total, 0)`},
		{guarantee: Money, promise: "entries belong to an account of their currency, to the outside, or to the way to another ledger", sql: `
			SELECT format('entry %s: account %s (%s), entry in %s', e.id, e.account, coalesce(a.currency, 'absent'), e.currency)
			FROM entries e LEFT JOIN accounts a ON a.id = e.account
			WHERE CASE WHEN a.id IS NULL THEN e.account <> 'outside/' || e.currency AND e.account NOT LIKE 'transit/%' ELSE a.currency <> e.currency END`},
		{guarantee: Money, promise: "deposits minus withdrawals are what is available and held", sql: `
			SELECT format('%s: deposits %s - withdrawals %s <> available %s + held %s', currency, sum(deposits),
			              sum(withdrawals), sum(available), sum(held))
			FROM (SELECT currency, 0::numeric AS deposits, 0::numeric AS withdrawals, sum(available) AS available, sum(held) AS held
			      FROM accounts GROUP BY currency
			      UNION ALL
			      SELECT currency, coalesce(sum(amount) FILTER (WHERE kind = 'deposit' OR source LIKE 'transit/%'), 0),
			             coalesce(sum(amount) FILTER (WHERE kind = 'withdrawal' OR destination LIKE 'transit/%'), 0), 0, 0
			      FROM transfers WHERE status = 'completed' GROUP BY currency) AS parts
			GROUP BY currency
			HAVING sum(deposits) - sum(withdrawals) <> sum(available) + sum(held)`},
		{guarantee: Money, promise: "only deposits come from the outside, only withdrawals go there", sql: `
			SELECT format('transfer %s (%s): from %s to %s', id, kind, source, destination)
			FROM transfers
			WHERE (kind = 'deposit') <> (source = 'outside/' || currency)
			   OR (kind = 'withdrawal') <> (destination = 'outside/' || currency)`},
		{guarantee: Money, promise: "money comes from another ledger, or goes there, by a leg that is marked as done, once", sql: `
			SELECT format('transfer %s (%s): from %s to %s, %s legs', t.id, t.kind, t.source, t.destination, count(l.saga))
			FROM transfers t LEFT JOIN saga_legs l ON l.transfer = t.id
			WHERE t.kind = 'cross' OR t.source LIKE 'transit/%' OR t.destination LIKE 'transit/%'
			GROUP BY t.id HAVING count(l.saga) <> 1 OR t.kind <> 'cross' OR t.status <> 'completed'
			UNION ALL
			SELECT format('leg %s of %s has no transfer %s', l.step, l.saga, l.transfer)
			FROM saga_legs l LEFT JOIN transfers t ON t.id = l.transfer WHERE l.outcome = 'done' AND t.id IS NULL`},
		{guarantee: Money, promise: "a reference is that of a deposit, withdrawal or transfer, and taken if that is completed", sql: `
			SELECT format('reference %s of transfer %s (%s, %s), taken: %s', r.reference, r.transfer, coalesce(t.kind, 'absent'), t.status, r.completed)
			FROM transfer_references r LEFT JOIN transfers t ON t.id = r.transfer
			WHERE t.id IS NULL OR t.kind NOT IN ('transfer', 'deposit', 'withdrawal') OR r.completed <> (t.status = 'completed')
			UNION ALL
			SELECT format('reference %s is that of %s completed transfers', reference, count(*)) FROM transfer_references
			WHERE completed GROUP BY reference HAVING count(*) > 1`},
		{guarantee: Money, promise: "the legs of a completed transfer were all moved, those of a failed one not at all", sql: `
			SELECT format('leg %s of transfer %s (%s): %s %s from %s to %s; moved: %s %s from %s to %s', l.leg, l.transfer, coalesce(t.status, 'absent'),
			              l.amount, l.currency, l.source, l.destination, p.amount, p.currency, p.source, p.destination)
			FROM transfer_legs l LEFT JOIN transfers t ON t.id = l.transfer LEFT JOIN transfers p ON p.id = l.part
			WHERE CASE WHEN t.status = 'completed'
			           THEN (p.source, p.destination, p.amount, p.currency, p.status, p.kind, p.memo, p.created_at, p.id = t.id)
			                IS DISTINCT FROM (l.source, l.destination, l.amount, l.currency, 'completed', 'transfer', t.memo, t.created_at, l.leg = 0)
			           ELSE t.status IS DISTINCT FROM 'failed' OR l.part IS NOT NULL END
			UNION ALL
			SELECT format('transfer %s has %s legs, the last of which is number %s', transfer, count(*), max(leg))
			FROM transfer_legs GROUP BY transfer HAVING count(*) <> max(leg) + 1`},
		{guarantee: Money, promise: "what is held is the sum of the open holds", sql: `
			SELECT format('account %s: held %s, open holds sum to %s', coalesce(a.id, h.account), a.held, coalesce(h.total, 0))
			FROM accounts a FULL JOIN
			     (SELECT account, sum(amount) AS total FROM holds WHERE status = 'open' GROUP BY account) h ON h.account = a.id
			WHERE coalesce(a.held, 0) <> coalesce(h.total, 0)`},
		{guarantee: Money, promise: "nothing available or held is negative", sql: `
			SELECT format('account %s: available %s, held %s', id, available, held)
			FROM accounts WHERE available < 0 OR held < 0`},
		{guarantee: Money, promise: "an account's entries have distinct versions, none past the account's", sql: `
			SELECT format('account %s: version %s has %s entries, account is at %s', a.id, e.version, count(*), a.version)
			FROM entries e JOIN accounts a ON a.id = e.account
			GROUP BY a.id, a.version, e.version HAVING count(*) > 1 OR e.version > a.version`},
		{guarantee: Money, promise: "a captured hold has its one transfer, and a capture its one hold", sql: `
			SELECT format('hold %s: captured %s of %s; transfer %s is %s', h.id, h.captured, h.amount, h.transfer, coalesce(t.status, 'absent'))
			FROM holds h LEFT JOIN transfers t ON t.id = h.transfer
			WHERE (h.status = 'captured' AND (t.id IS NULL OR t.kind <> 'capture' OR t.status <> 'completed'
			       OR t.source <> h.account OR t.amount <> h.captured))
			   OR (h.status <> 'captured' AND t.id IS NOT NULL AND t.status = 'completed')
			UNION ALL
			SELECT format('capture %s belongs to %s holds', t.id, count(h.id))
			FROM transfers t LEFT JOIN holds h ON h.transfer = t.id
			WHERE t.kind = 'capture' AND t.status = 'completed'
			GROUP BY t.id HAVING count(h.id) <> 1`},
	}
}
