package audit

// multidrawChecks look at what a multi-draw has saved. That the draws are those of its seed is for fairlead verify.
func multidrawChecks() []check {
	return []check{
		{guarantee: Multidraws, promise: "a multi-draw has every checkpoint that it counts, once, and no other", sql: `
			SELECT format('multi-draw %s: %s checkpoints for %s draws, rows %s to %s, %s in all', m.id, m.checkpoints, m.completed, c.first, c.last, c.n)
			FROM multidraws m CROSS JOIN LATERAL (
				SELECT count(*) AS n, coalesce(min(seq), 1) AS first, coalesce(max(seq), 0) AS last FROM multidraw_chunks WHERE multidraw = m.id) AS c
			WHERE c.n <> m.checkpoints OR c.first <> 1 OR c.last <> m.checkpoints`},
		{guarantee: Multidraws, promise: "all checkpoints have as many draws as they should", sql: `
			SELECT format('multi-draw %s: checkpoint %s has %s bytes for %s draws', m.id, c.seq, length(c.data), least(m.every, m.total - (c.seq - 1) * m.every))
			FROM multidraws m JOIN multidraw_chunks c ON c.multidraw = m.id
			CROSS JOIN LATERAL (SELECT length(data) AS bytes FROM multidraw_chunks WHERE multidraw = m.id AND seq = 1) AS f
			WHERE length(c.data)::numeric * least(m.every, m.total) <> f.bytes::numeric * least(m.every, m.total - (c.seq - 1) * m.every)
				OR f.bytes / least(m.every, m.total) NOT IN (1, 2, 4, 8)`},
		{guarantee: Multidraws, promise: "the commitment of a multi-draw is that of its seed", sql: `
			SELECT format('multi-draw %s', m.id) FROM multidraws m LEFT JOIN multidraw_seeds s ON s.multidraw = m.id
			WHERE s.seed IS NULL OR sha256(s.seed) <> m.commitment`},
		{guarantee: Multidraws, promise: "a lock key is held by one multi-draw", sql: `
			SELECT format('%s is held by %s', lock_key, string_agg(id::text, ', ')) FROM multidraws
			WHERE status IN ('running', 'interrupted') GROUP BY lock_key HAVING count(*) > 1`},
	}
}
