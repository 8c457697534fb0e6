package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestAServerIsStoppedAmidATransaction sends the first statements of a transaction and not its end, as a server does that is stopped then: PostgreSQL has no
// timeout for that. Another server ends the session, and has the row.
func TestAServerIsStoppedAmidATransaction(t *testing.T) {
	t.Parallel()
	seen := &recorder{}
	db := open(t, Options{URL: database(t), Observer: seen})
	money := newLedgerService(t, db)
	fund(t, money, 100, "ann", "ben")
	config := db.pool.Config().ConnConfig.Config.Copy()
	conn, err := pgconn.ConnectConfig(t.Context(), config)
	testwait.Must(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) }) // It was ended.
	p := conn.StartPipeline(t.Context())
	p.SendQueryParams(`UPDATE accounts SET held = held WHERE id = 'ann'`, nil, nil, nil, nil)
	p.SendFlushRequest()
	testwait.Must(t, p.Flush())
	results, err := p.GetResults()
	testwait.Must(t, err)
	reader, ok := results.(*pgconn.ResultReader)
	if !ok {
		t.Fatalf("the update was answered by %T", results)
	}
	testwait.Must(t, testwait.Err(reader.Close()))

	move := own[ledger.Op](ledger.MakeTransfer{From: "ann", To: "ben", Amount: 1})
	testwait.Eventually(t, patience, "a transfer of the same account", func() bool { return answerErr(money.Execute(t.Context(), move)) == nil })
	if n := seen.fallbacks()["stalled"]; n != 1 {
		t.Errorf("%d looks have found stalled sessions", n)
	}
	if n := ask[int](t, db, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, conn.PID()); n != 0 {
		t.Error("the session has not ended")
	}
}
