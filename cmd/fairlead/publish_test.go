package main

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// TestVaultKeys goes through where the key that seals secrets comes from, and where it stays.
func TestVaultKeys(t *testing.T) {
	vault := func(given, data string) *publish.Vault {
		t.Helper()
		v, err := openVault(given, data)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	opens := func(v *publish.Vault, s publish.Sealed) bool {
		got, err := v.Open(s, nil)
		return err == nil && string(got) == "secret"
	}
	// Without anything it is made, and kept where nobody else can read it.
	t.Setenv(adminKeyVariable, "")
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
	t.Setenv(adminKeyVariable, strings.Repeat("a", 32))
	two, three := t.TempDir(), t.TempDir()
	sealed = vault("", two).Seal([]byte("secret"), nil)
	if !opens(vault("", three), sealed) || !opens(vault("", one), sealed) {
		t.Error("a server with the same admin key cannot open the secret")
	}
	t.Setenv(adminKeyVariable, strings.Repeat("b", 32))
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
		if _, err := openVault(bad, two); err == nil {
			t.Errorf("key %q is taken", bad)
		}
	}
	if err := os.WriteFile(secretsKeyFile(two), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openVault("", two); err == nil {
		t.Error("a damaged file is replaced")
	}
}

func TestPublishFlags(t *testing.T) {
	t.Parallel()
	good := publishOptions{
		staleAfter: time.Second, sweepEvery: time.Second, policy: publish.Policy{Backoff: time.Millisecond, BreakerRefusals: 1}, concurrency: 1, perTarget: 1,
	}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for i, change := range []func(*publishOptions){
		func(o *publishOptions) { o.staleAfter = 999 * time.Millisecond },
		func(o *publishOptions) { o.sweepEvery = 0 },
		func(o *publishOptions) { o.policy.Backoff = 0 },
		func(o *publishOptions) { o.policy.Backoff = 2 * time.Hour },
		func(o *publishOptions) { o.policy.PaceBase = -1 },
		func(o *publishOptions) { o.policy.PaceMax = 25 * time.Hour },
		func(o *publishOptions) { o.policy.BreakerOpen = -time.Second },
		func(o *publishOptions) { o.policy.BreakerRefusals = 0 },
		func(o *publishOptions) { o.concurrency = 0 },
		func(o *publishOptions) { o.perTarget = 2 },
		func(o *publishOptions) { o.secretsKey = "ab" },
	} {
		bad := good
		change(&bad)
		if err := bad.check(); err == nil {
			t.Errorf("case %d is taken", i)
		}
	}
}
