package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/postgres"
)

// keyInfo is a key as the command line shows it; the names are the server's.
type keyInfo struct {
	ID        string     `json:"id"`
	Role      auth.Role  `json:"role"`
	Name      string     `json:"name"`
	CreatedAt time.Time  `json:"created_at"`
	RevokedAt *time.Time `json:"revoked_at"`
}

func newKeys() *cobra.Command {
	cmd := group(&cobra.Command{
		Use: "keys", Short: "Make, list and revoke API keys",
		Example: "  fairlead keys create --role service --name shop\n" +
			"  fairlead keys list --url https://fairlead.example        # with an admin key in " + keyVariable,
	})
	cmd.AddCommand(newKeysCreate(), newKeysList(), newKeysRevoke())
	return cmd
}

func newKeysCreate() *cobra.Command {
	var (
		t          target
		role, name string
	)
	cmd := &cobra.Command{
		Use:   "create --role admin|service|reader --name NAME",
		Short: "Make a key and print it, once",
		Long:  "Make a key and print it, once. The secret is made here; the server and the database learn only its SHA-256.",
		Example: "  fairlead keys create --role service --name shop\n" +
			"  fairlead keys create --role reader --name grafana --json --database-url postgres://db.internal/fairlead",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !auth.Role(role).KeyRole() {
				return errors.New("--role must be admin, service or reader")
			}
			if n := utf8.RuneCountInString(name); n < 1 || n > 200 || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
				return errors.New("--name must have 1 to 200 characters in UTF-8, and no control characters")
			}
			secret, hash, err := auth.GenerateKey(auth.Role(role))
			if err != nil {
				return err
			}
			id, err := t.createKey(cmd.Context(), auth.Key{Role: auth.Role(role), Name: name, Hash: hash})
			if err != nil {
				return err
			}
			return show(cmd, t.json, map[string]string{"id": id, "key": secret}, func(out io.Writer) {
				_, _ = fmt.Fprintf(out, "id   %s\nkey  %s\nThe key is not shown again.\n", id, secret)
			})
		},
	}
	t.bind(cmd)
	cmd.Flags().StringVar(&role, "role", "", "admin, service, or reader, which reads everything and changes nothing")
	cmd.Flags().StringVar(&name, "name", "", "what the key is for")
	return cmd
}

func (t *target) createKey(ctx context.Context, key auth.Key) (string, error) {
	if t.url != "" {
		made, _, err := call[client.APIKey](ctx, t, http.MethodPost, "/v1/keys", client.CreateKeyRequest{
			Role: client.CreateKeyRequestRole(key.Role), Name: key.Name, Hash: hex.EncodeToString(key.Hash[:]),
		})
		if err != nil {
			return "", err
		}
		return made.ID, nil
	}
	db, err := t.database(ctx)
	if err != nil {
		return "", err
	}
	defer db.Close()
	key.ID, key.CreatedAt = uuid.Must(uuid.NewV7()).String(), time.Now().UTC()
	a, err := postgres.NewAPIKeys(db).Execute(ctx, command.Command[auth.KeyOp]{Op: auth.KeyOp{Create: &key}, Principal: "command line"})
	return key.ID, errors.Join(err, a.Err)
}

func newKeysList() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use: "list", Short: "List keys, revoked ones too", Args: cobra.NoArgs,
		Example: "  fairlead keys list --json | jq -r '.keys[] | select(.revoked_at == null) | .name'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			keys, err := t.listKeys(cmd.Context())
			if err != nil {
				return err
			}
			return show(cmd, t.json, map[string]any{"keys": keys}, func(out io.Writer) {
				for _, k := range keys {
					state := "in force"
					if k.RevokedAt != nil {
						state = "revoked " + k.RevokedAt.UTC().Format(time.RFC3339)
					}
					_, _ = fmt.Fprintf(out, "%s  %-7s  %-30s  %s\n", k.ID, k.Role, k.Name, state)
				}
			})
		},
	}
	t.bind(cmd)
	return cmd
}

func (t *target) listKeys(ctx context.Context) (list []keyInfo, err error) {
	list = []keyInfo{}
	if t.url != "" {
		c, err := t.server()
		if err != nil {
			return nil, err
		}
		for k, err := range c.APIKeys(ctx) {
			if err != nil {
				return nil, t.failed(http.MethodGet, "/v1/keys", err)
			}
			info := keyInfo{ID: k.ID, Role: auth.Role(k.Role), Name: k.Name, CreatedAt: k.CreatedAt}
			if !k.RevokedAt.IsZero() {
				info.RevokedAt = &k.RevokedAt
			}
			list = append(list, info)
		}
		return list, nil
	}
	db, err := t.database(ctx)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	keys, err := postgres.NewAPIKeys(db).Keys(ctx)
	for _, k := range keys {
		list = append(list, keyInfo{ID: k.ID, Role: k.Role, Name: k.Name, CreatedAt: k.CreatedAt, RevokedAt: k.RevokedAt})
	}
	return list, err
}

func newKeysRevoke() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use: "revoke ID", Short: "Revoke a key for good; in force everywhere within 5 s", Example: "  fairlead keys revoke " + exampleID, Args: one("the id of a key, which fairlead keys list shows"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := uuid.Parse(args[0])
			if err != nil {
				return fmt.Errorf("%q is not the id of a key; fairlead keys list shows them", args[0])
			}
			if err := t.revokeKey(cmd.Context(), id.String()); err != nil {
				return err
			}
			return show(cmd, t.json, map[string]string{"id": id.String(), "status": "revoked"}, func(out io.Writer) {
				_, _ = fmt.Fprintln(out, "revoked", id)
			})
		},
	}
	t.bind(cmd)
	return cmd
}

func (t *target) revokeKey(ctx context.Context, id string) error {
	if t.url != "" {
		_, _, err := call[client.APIKey](ctx, t, http.MethodDelete, "/v1/keys/"+id, nil)
		return err
	}
	db, err := t.database(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	return postgres.NewAPIKeys(db).RevokeKey(ctx, id)
}
