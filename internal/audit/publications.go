package audit

func publicationChecks() []check {
	return []check{
		{guarantee: Publications, promise: "what is published has one published attempt, and nothing else has one", sql: `
			SELECT format('publication %s (%s): %s published attempts', p.id, p.status, count(a.version))
			FROM publications p LEFT JOIN publication_attempts a ON a.publication = p.id AND a.result = 'published'
			GROUP BY p.id HAVING count(a.version) <> CASE WHEN p.status = 'published' THEN 1 ELSE 0 END`},
		{guarantee: Publications, promise: "every claim is an attempt, numbered 1, 2, … without a gap", sql: `
			SELECT format('publication %s: version %s, %s attempts counted, %s there, up to version %s', p.id, p.execution_version, p.attempts,
			              count(a.version), coalesce(max(a.version), 0))
			FROM publications p LEFT JOIN publication_attempts a ON a.publication = p.id
			GROUP BY p.id HAVING count(a.version) <> p.attempts OR coalesce(max(a.version), 0) <> p.attempts OR p.execution_version <> p.attempts`},
		{guarantee: Publications, promise: "an attempt runs under the claim that is in force, and no other runs", sql: `
			SELECT format('publication %s (%s): attempt %s', p.id, p.status, coalesce(a.version::text, 'absent'))
			FROM (SELECT * FROM publications WHERE status = 'publishing') p
			FULL JOIN (SELECT * FROM publication_attempts WHERE result IS NULL) a ON a.publication = p.id
			WHERE (a.version = p.execution_version AND a.lock_id = p.execution_lock_id) IS NOT TRUE`},
		{guarantee: Publications, promise: "nothing is claimed before it is due", sql: `
			SELECT format('publication %s: due at %s, attempt %s at %s', p.id, p.actual_publish_at, a.version, a.started_at)
			FROM publications p JOIN publication_attempts a ON a.publication = p.id WHERE a.started_at < p.actual_publish_at
			UNION ALL
			SELECT format('publication %s: for %s, due at %s', id, publish_at, actual_publish_at) FROM publications WHERE actual_publish_at < publish_at`},
		{guarantee: Publications, promise: "what is cancelled is not attempted again, and a draft never was", sql: `
			SELECT format('publication %s (%s): attempt %s is %s', p.id, p.status, a.version, coalesce(a.result, 'running'))
			FROM publications p JOIN publication_attempts a ON a.publication = p.id
			WHERE p.status = 'draft' OR p.status = 'cancelled' AND (a.result IS NULL OR a.result = 'published')`},
	}
}
