package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
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
			"admin key in force. It needs the database: access to that gives all rights anyway.",
		Example: "  fairlead console                                # for the server in this directory\n" +
			"  fairlead console --database-url postgres://db.internal/fairlead --address https://fairlead.example",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if address == "" {
				address = cmp.Or(kept(addressFile(t.data)), defaultURL)
			}
			base, err := url.Parse(address)
			if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
				return errors.New("--address must be the address of a server, such as http://127.0.0.1:8080")
			}
			db, err := t.database(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			secret, hash := operator.NewSecret()
			made, err := postgres.NewOperator(db).MakeLink(cmd.Context(), hash, operator.LinkLife, false)
			if err != nil {
				return err
			}
			if !made {
				return errors.New("there is no admin key in force: make one with fairlead keys create --role admin")
			}
			link := strings.TrimSuffix(base.String(), "/") + "/console/" + operator.LinkFragment + secret
			return show(cmd, t.json, map[string]string{"link": link, "expires_in": operator.LinkLife.String()}, func(out io.Writer) {
				_, _ = fmt.Fprintln(out, link)
			})
		},
	}
	t.bindDatabase(cmd)
	cmd.Flags().StringVar(&address, "address", "", "where the browser reaches the server (default the server of --data, or "+defaultURL+")")
	return cmd
}
