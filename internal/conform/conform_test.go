package conform_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/conformance"
	"github.com/fairlead-dev/fairlead/internal/conform"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// leftover counts the schemas of runs in a database.
func leftover(t *testing.T, database string) (n int) {
	t.Helper()
	conn := pgtest.Connect(t, database)
	testwait.Must(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'fairlead%'`).Scan(&n))
	return n
}

// report runs some checks, and fails the test unless they were tried.
func report(t *testing.T, o conform.Options) *conform.Report {
	t.Helper()
	r, err := conform.Run(t.Context(), o)
	testwait.Must(t, err)
	for _, target := range r.Targets {
		if target.Left != "" {
			t.Errorf("%s: left: %s", target.Kind, target.Left)
		}
	}
	return r
}

func verdict(r *conform.Report, number string) conformance.Verdict {
	i := slices.IndexFunc(r.Guarantees, func(g conform.Guarantee) bool { return g.Number == number })
	if i < 0 {
		return "not in the report"
	}
	return r.Guarantees[i].Verdict
}

// some are checks of each suite that are soon done.
func some() []string {
	return []string{
		"locks/AllOrNothing", "locks/FenceRefusesOldTokens", "locks/DeadHolderIsReplaced", "claims/LifeOfAClaim", "claims/Limit", "idempotency/Life", "idempotency/ServerRestarts",
		"checkpoints/guarded", "checkpoints/unreachable", "sagas/StepOnce", "sagas/DecisionStands", "services/Retries",
	}
}

// TestHolds runs checks on servers that keep their promises.
func TestHolds(t *testing.T) {
	t.Parallel()
	database, redis := pgtest.Server(t).URL(), testredis.Start(t) // Servers refuse fsync=off, which other test databases have.
	ended := 0
	r := report(t, conform.Options{
		DatabaseURL: database, RedisURL: "redis://" + redis.Addr(), Only: some(), Seed: 7,
		Ended: func(f conform.Finding, done, all int) {
			if ended++; done != ended || all != 19 {
				t.Errorf("%s: %d of %d, after %d", f.Check, done, all, ended)
			}
		},
	})
	if !r.Held || r.Seed != 7 || len(r.Findings) != 19 || len(r.Targets) != 2 {
		t.Errorf("%+v", r)
	}
	twoPhase := conformance.Held
	if pgtest.Off(pgkit.Prepare, pgkit.AdvisoryLocks) {
		twoPhase = conformance.NotTried
	}
	for _, f := range r.Findings {
		want := conformance.Held
		switch f.Check {
		case "ServerRestarts":
			want = conformance.NotTried
		case "DecisionStands":
			want = twoPhase
		}
		if f.Verdict != want || f.Tried == "" || len(f.Guarantees) == 0 {
			t.Errorf("%+v", f)
		}
		if f.Check == "DeadHolderIsReplaced" && (len(f.Times) != 1 || f.Times[0].LimitMS != 2000) {
			t.Errorf("no time: %+v", f)
		}
	}
	if verdict(r, "L3") != conformance.Held || verdict(r, "I3") != conformance.NotTried || verdict(r, "I2") != conformance.Held || verdict(r, "T1") != twoPhase || r.Complete {
		t.Errorf("%+v", r.Guarantees)
	}
	if n := leftover(t, database); n != 0 {
		t.Errorf("%d schemas are left", n)
	}
	c := redis.Client(t)
	if n, err := c.Do(t.Context(), c.B().Dbsize().Build()).AsInt64(); err != nil || n != 0 {
		t.Errorf("%d keys are left, %v", n, err)
	}
}

// lies has each table of fences forget which token it has seen, and each table of claims forget who has a row.
const lies = `CREATE FUNCTION public.forget() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.token := 1; RETURN NEW; END $$;
	CREATE FUNCTION public.lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW."Lock" := NULL; RETURN NEW; END $$;
	CREATE FUNCTION public.lie() RETURNS event_trigger LANGUAGE plpgsql AS $$
	DECLARE made record;
	BEGIN
		FOR made IN SELECT objid::regclass AS name, command_tag AS tag FROM pg_event_trigger_ddl_commands() WHERE object_type = 'table' LOOP
			IF made.tag = 'CREATE TABLE' AND made.name::text LIKE '%.lock_fences' OR made.name::text = 'lock_fences' THEN
				EXECUTE format('CREATE TRIGGER forget BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION public.forget()', made.name);
			ELSIF made.tag = 'CREATE TABLE' AND made.name::text LIKE '%."Posts %' THEN
				EXECUTE format('CREATE TRIGGER lose BEFORE UPDATE ON %s FOR EACH ROW EXECUTE FUNCTION public.lose()', made.name);
			END IF;
		END LOOP;
	END $$;
	CREATE EVENT TRIGGER lie ON ddl_command_end EXECUTE FUNCTION public.lie()`

// TestBrokenDatabase: fences and claims don't hold in a database that changes what is written there, and the rest does.
func TestBrokenDatabase(t *testing.T) {
	t.Parallel()
	database := pgtest.NewDatabase(t, nil)
	_, err := pgtest.Connect(t, database).Exec(t.Context(), lies)
	testwait.Must(t, err)
	r := report(t, conform.Options{DatabaseURL: database, Only: some()})
	if r.Held || verdict(r, "L2") != conformance.Broken || verdict(r, "E1") != conformance.Broken || verdict(r, "C1") != conformance.Held {
		t.Errorf("%+v", r.Findings)
	}
	for _, f := range r.Findings {
		if f.Verdict == conformance.Broken && len(f.Why) == 0 {
			t.Errorf("%s is broken without a reason", f.Check)
		}
	}
}

// TestForgetfulRedis: nothing holds that rests on states which a server drops, as one does that evicts.
func TestForgetfulRedis(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	c := redis.Client(t)
	ctx, stop := context.WithCancel(t.Context())
	var evicting sync.WaitGroup
	evicting.Go(func() {
		for ctx.Err() == nil {
			_ = c.Do(ctx, c.B().Flushall().Build()).Error()
		}
	})
	r := report(t, conform.Options{RedisURL: "redis://" + redis.Addr(), Only: []string{"checkpoints/guarded", "checkpoints/kept byte for byte", "checkpoints/one of many"}})
	stop()
	evicting.Wait()
	if r.Held || verdict(r, "C1") != conformance.Broken {
		t.Errorf("%+v", r.Findings)
	}
	if notes := strings.Join(r.Targets[0].Notes, " "); !strings.Contains(notes, "appendonly is no") {
		t.Errorf("notes %q", notes)
	}
}

// TestSlowDatabase: a database is too slow in which each write takes longer than the limit.
func TestSlowDatabase(t *testing.T) {
	t.Parallel()
	database := pgtest.NewDatabase(t, nil)
	const slow = `CREATE FUNCTION public.sleep() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); END $$;
		CREATE EVENT TRIGGER sleep ON ddl_command_end WHEN TAG IN ('COMMENT') EXECUTE FUNCTION public.sleep()`
	_, err := pgtest.Connect(t, database).Exec(t.Context(), slow, pgx.QueryExecModeSimpleProtocol)
	testwait.Must(t, err)
	if why := conform.SlowDatabase(t.Context(), database, "public"); !strings.Contains(why, "too slow") {
		t.Errorf("%q", why)
	}
	if why := conform.SlowDatabase(t.Context(), database, "absent"); why != "" { // What can't be measured is no reason.
		t.Errorf("%q", why)
	}
}

// TestInterrupted ends a run after its first check: what was made is gone, and the rest was not tried.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	database := pgtest.NewDatabase(t, nil)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	r, err := conform.Run(ctx, conform.Options{
		DatabaseURL: database, Only: []string{"locks/NoFalseVictims", "locks/AllOrNothing", "claims", "checkpoints"},
		Ended: func(conform.Finding, int, int) { interrupt() },
	})
	if !errors.Is(err, context.Canceled) || r == nil || len(r.Targets) != 1 || r.Targets[0].Left != "" {
		t.Fatalf("%+v, %v", r, err)
	}
	if n := leftover(t, database); n != 0 {
		t.Errorf("%d schemas are left", n)
	}
	for _, f := range r.Findings {
		if f.Verdict == conformance.Broken {
			t.Errorf("an interrupt is taken for a broken promise: %+v", f)
		}
	}
	if last := r.Findings[len(r.Findings)-1]; last.Verdict != conformance.NotTried || last.Why[0] != "interrupted" {
		t.Errorf("%+v", last)
	}
}

func TestKeep(t *testing.T) {
	t.Parallel()
	database := pgtest.NewDatabase(t, nil)
	r, err := conform.Run(t.Context(), conform.Options{DatabaseURL: database, Only: []string{"claims/Limit"}, Keep: true})
	testwait.Must(t, err)
	if leftover(t, database) != 1 || r.Targets[0].Left == "" {
		t.Fatalf("%+v", r.Targets)
	}
	_, err = pgtest.Connect(t, database).Exec(t.Context(), r.Targets[0].Remove, pgx.QueryExecModeSimpleProtocol)
	testwait.Must(t, err)
	if n := leftover(t, database); n != 0 {
		t.Errorf("%d schemas are left", n)
	}
}

// TestRefused meets servers on which nothing can be tried.
func TestRefused(t *testing.T) {
	t.Parallel()
	database := pgtest.NewDatabase(t, nil)
	conn := pgtest.Connect(t, database)
	role := fmt.Sprintf("nobody_%d", os.Getpid())
	_, err := conn.Exec(t.Context(), `CREATE ROLE `+role+` LOGIN PASSWORD 'x'`)
	testwait.Must(t, err)
	t.Cleanup(func() {
		c, err := pgx.Connect(context.Background(), database)
		testwait.Must(t, err)
		_, err = c.Exec(context.Background(), `DROP ROLE `+role)
		testwait.Check(t, errors.Join(err, c.Close(context.Background())))
	})
	as := func(user *url.Userinfo, setting, value string) string {
		u, err := url.Parse(database)
		testwait.Must(t, err)
		q := u.Query()
		if user != nil {
			u.User = user
		}
		if setting != "" {
			q.Set(setting, value)
		}
		u.RawQuery = q.Encode()
		return u.String()
	}
	for name, c := range map[string]struct {
		o    conform.Options
		want string
	}{
		"nothing":            {conform.Options{}, "no server is named"},
		"a suite":            {conform.Options{DatabaseURL: database, Only: []string{"lock"}}, `no suite "lock"`},
		"a check":            {conform.Options{DatabaseURL: database, Only: []string{"locks/X"}}, "nothing to run"},
		"read-only":          {conform.Options{DatabaseURL: as(nil, "default_transaction_read_only", "on")}, "read-only"},
		"no right":           {conform.Options{DatabaseURL: as(url.UserPassword(role, "x"), "", "")}, "GRANT CREATE ON DATABASE"},
		"no Redis":           {conform.Options{RedisURL: "redis://127.0.0.1:1"}, "redis at 127.0.0.1:1"},
		"no URL":             {conform.Options{RedisURL: "http://127.0.0.1"}, "URL of Redis"},
		"no endpoint":        {conform.Options{EtcdEndpoints: []string{"localhost:2379"}}, "http://HOST:2379"},
		"no etcd":            {conform.Options{EtcdEndpoints: []string{"http://127.0.0.1:1"}}, "etcd at http://127.0.0.1:1"},
		"a transaction pool": {conform.Options{DatabaseURL: pgtest.PgBouncer(t, database, "pool_mode = transaction").Through(t, database)}, "pool_mode = transaction"},
	} {
		if r, err := conform.Run(t.Context(), c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v; want %q", name, r, err, c.want)
		}
	}
	if n := leftover(t, database); n != 0 {
		t.Errorf("%d schemas are left", n)
	}
}

// TestPages compares the titles of guarantees and the limits with the pages that have them.
func TestPages(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/guarantees.md")
	testwait.Must(t, err)
	found := regexp.MustCompile(`(?m)^## (\w\d)\n([^.]+)\. `).FindAllStringSubmatch(string(page), -1)
	var numbers []string
	for _, m := range found {
		numbers = append(numbers, m[1])
		if got := conform.Titles()[m[1]]; got != m[2] {
			t.Errorf("%s is %q, and on the page %q", m[1], got, m[2])
		}
	}
	if all := strings.Fields(conform.Numbers); !slices.Equal(numbers, all) {
		t.Errorf("%q, and on the page %q", all, numbers)
	}
}
