package fairlead

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/fairdraw/beacon"
	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestVaultKeys goes through where the key that seals secrets comes from, and where it stays.
func TestVaultKeys(t *testing.T) {
	t.Parallel()
	admin := ""
	vault := func(given, data string) *publish.Vault {
		t.Helper()
		v, err := openVault(given, admin, data)
		testwait.Must(t, err)
		return v
	}
	opens := func(v *publish.Vault, s publish.Sealed) bool {
		got, err := v.Open(s, nil)
		return err == nil && string(got) == "secret"
	}
	// Without anything it is made, and kept where nobody else can read it.
	one := filepath.Join(t.TempDir(), "new")
	sealed := vault("", one).Seal([]byte("secret"), nil)
	info, err := os.Stat(secretsKeyFile(one))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	if !opens(vault("", one), sealed) || opens(vault("", t.TempDir()), sealed) {
		t.Error("the kept key is not the one that is used")
	}
	// Servers that share an admin key open each other's secrets; a new admin key does not lock a server out of its own.
	admin = strings.Repeat("a", 32)
	two, three := t.TempDir(), t.TempDir()
	sealed = vault("", two).Seal([]byte("secret"), nil)
	if !opens(vault("", three), sealed) || !opens(vault("", one), sealed) {
		t.Error("a server with the same admin key cannot open the secret")
	}
	admin = strings.Repeat("b", 32)
	if !opens(vault("", two), sealed) || opens(vault("", t.TempDir()), sealed) {
		t.Error("another admin key changes what can be opened")
	}
	// A given key goes before all that; more of them open.
	old, fresh := strings.Repeat("01", 32), strings.Repeat("02", 32)
	sealed = vault(old, two).Seal([]byte("secret"), nil)
	if !opens(vault(fresh+", "+old, two), sealed) || opens(vault(fresh, two), sealed) {
		t.Error("keys do not replace each other one after the other")
	}
	for _, bad := range []string{"x", old[2:], old + "01", old + ",", "," + old, hex.EncodeToString([]byte("short"))} {
		if _, err := openVault(bad, admin, two); err == nil {
			t.Errorf("key %q is taken", bad)
		}
	}
	testwait.Must(t, os.WriteFile(secretsKeyFile(two), []byte("damaged"), 0o600))
	if _, err := openVault("", admin, two); err == nil {
		t.Error("a damaged file is replaced")
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	description, err := json.Marshal(beacon.Quicknet())
	testwait.Must(t, err)
	chain := filepath.Join(t.TempDir(), "chain.json")
	testwait.Must(t, os.WriteFile(chain, description, 0o600))
	for _, o := range []Options{{}, {BeaconChain: "default"}, {BeaconChain: "none"}, {BeaconChain: chain, BeaconRelays: []string{"http://127.0.0.1:1"}}} {
		o = o.withDefaults()
		if err := o.check(); err != nil {
			t.Error(err)
		}
	}
	good := Options{}.withDefaults()
	good.Data = filepath.Join(t.TempDir(), "data")
	for i, change := range []func(*Options){
		func(o *Options) { o.ClaimStaleAfter = 999 * time.Millisecond },
		func(o *Options) { o.ClaimSweepEvery = None },
		func(o *Options) { o.RetryBackoff = None },
		func(o *Options) { o.RetryBackoff = 2 * time.Hour },
		func(o *Options) { o.PaceBase = None },
		func(o *Options) { o.PaceMax = 25 * time.Hour },
		func(o *Options) { o.BreakerOpen = -time.Second },
		func(o *Options) { o.BreakerRefusals = None },
		func(o *Options) { o.PublishConcurrency = None },
		func(o *Options) { o.AccountsInMemory = minAccounts - 1 },
		func(o *Options) { o.AccountsInMemory = maxAccounts + 1 },
		func(o *Options) { o.PublishPerTarget = 257 },
		func(o *Options) { o.SecretsKey = "ab" },
		func(o *Options) { o.SagaRetention, o.IdempotencyRetention = 48*time.Hour, 72*time.Hour },
		func(o *Options) { o.Ledgers = map[string]string{cross.Local: "postgres://h/d"} },
		func(o *Options) { o.Ledgers = map[string]string{"a b": "x"} },
		func(o *Options) { o.Ledgers = map[string]string{"..": "x"} },
		func(o *Options) { o.BeaconChain = "/nonexistent" },
		func(o *Options) { o.BeaconChain = chain }, // of one's own, without relays
		func(o *Options) { o.BeaconRelays = []string{"nonsense"} },
		func(o *Options) { o.BeaconLead = 1 << 60 },
		func(o *Options) { o.DrainDelay = -time.Second },
		func(o *Options) { o.JWTSecret = "short" },
		func(o *Options) { o.AllowedOrigins = []string{"https://shop.example", "*"} },
		func(o *Options) { o.DatabaseURL = "postgres://h/d?default_query_exec_mode=exec" },
		func(o *Options) { o.ReplicaURL = "postgres://h/d?default_query_exec_mode=simple_protocol" },
	} {
		bad := good
		change(&bad)
		if _, err := Open(t.Context(), bad); err == nil {
			t.Errorf("case %d is taken", i)
		}
	}
	if _, err := os.Stat(good.Data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was written: %v", err)
	}
}

func TestRemoteLedger(t *testing.T) {
	t.Parallel()
	for url, ok := range map[string]bool{
		"https://:key@host": true, "http://:key@127.0.0.1:8080/": true, "https://host": false, "https://key@host": false, "https://:key@": false, "https://:k%zz@h": false,
	} {
		l, err := remoteLedger(url, "fairlead:x")
		if (err == nil) != ok || ok && l == nil {
			t.Errorf("%q: %v", url, err)
		}
		if err != nil && strings.Contains(err.Error(), "key@") {
			t.Errorf("the error shows the key: %v", err)
		}
	}
}
