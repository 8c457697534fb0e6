package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/postgres"
)

func newConsole() *cobra.Command {
	var (
		t       target
		address string
	)
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Print a link that signs in to the web console, once",
		Long: "Print a link that signs in to the web console, once and within " + operator.LinkLife.String() + ", with the rights of the oldest\n" +
			"admin key in force, as access to the database gives all rights anyway. With --url, with those of the admin key in " + keyVariable + ".",
		Example: "  fairlead console                                # for the server in this directory\n" +
			"  fairlead console --url https://fairlead.example   # with an admin key in " + keyVariable + "\n" +
			"  fairlead console --database-url postgres://db.internal/fairlead --address https://fairlead.example",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			name := "--address"
			if address == "" {
				if name = "--url"; t.url == "" {
					name = addressFile(t.data)
				}
				address = cmp.Or(t.url, kept(addressFile(t.data)), defaultURL)
			}
			base, err := url.Parse(address)
			if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
				return fmt.Errorf("%s must be the address of a server, such as http://127.0.0.1:8080", name)
			}
			secret, hash := operator.NewSecret()
			if err := t.makeLink(cmd.Context(), hash); err != nil {
				return err
			}
			link := strings.TrimSuffix(base.String(), "/") + "/console/" + operator.LinkFragment + secret
			return show(cmd, t.json, map[string]string{"link": link, "expires_in": operator.LinkLife.String()}, func(out io.Writer) {
				_, _ = fmt.Fprintln(out, link)
			})
		},
	}
	t.bind(cmd)
	cmd.Flags().StringVar(&address, "address", "", "where the browser reaches the server (default --url, the server of --data, or "+defaultURL+")")
	return cmd
}

// makeLink has the server or the database know a link by the hash of its secret.
func (t *target) makeLink(ctx context.Context, hash operator.Hash) error {
	if t.url != "" {
		_, _, err := call[struct{}](ctx, t, http.MethodPost, "/console/links", map[string]string{"hash": hex.EncodeToString(hash[:])})
		return err
	}
	db, err := t.database(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	made, err := postgres.NewOperator(db).MakeLink(ctx, hash, operator.LinkLife, false)
	if err == nil && !made {
		err = errors.New("there is no admin key in force: make one with fairlead keys create --role admin")
	}
	return err
}
