package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/desk"
	"github.com/fairlead-dev/fairlead/internal/postgres"
)

// consoleAddress is where the console of a server that listens on addr is opened from the same machine.
func consoleAddress(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "http://" + addr + "/console/"
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port) + "/console/"
}

// consoleLink is a page's address with a secret that signs in once. The secret is behind the #, which browsers do not send:
// it is in no log of a server or proxy.
func consoleLink(address, secret string) string { return address + "#link=" + secret }

// announceConsole tells where the console is: by a link that signs in where nobody has ever done so, by its address elsewhere.
func (n *node) announceConsole(ctx context.Context, w io.Writer) {
	secret, hash := desk.NewSecret()
	address := consoleAddress(n.addr())
	made, err := postgres.NewDesk(n.db).MakeLink(ctx, hash, desk.LinkLife, true)
	if err != nil {
		n.logger.WarnContext(ctx, "no link to the console was made", "error", err)
	}
	if made {
		_, _ = fmt.Fprintf(w, "console (signs in once, within %s): %s\n", desk.LinkLife, consoleLink(address, secret))
		return
	}
	_, _ = fmt.Fprintf(w, "console: %s\n", address)
}

// openConsole is a fresh link that signs in once, or the mere address where none can be made.
func (n *node) openConsole(ctx context.Context) string {
	secret, hash := desk.NewSecret()
	address := consoleAddress(n.addr())
	if made, err := postgres.NewDesk(n.db).MakeLink(ctx, hash, desk.LinkLife, false); err != nil || !made {
		return address
	}
	return consoleLink(address, secret)
}

func newConsole() *cobra.Command {
	var (
		t       target
		address string
	)
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Print a link that signs in to the web console, once",
		Long: "Print a link that signs in to the web console, once and within " + desk.LinkLife.String() + ", with the rights of the oldest\n" +
			"admin key in force. It needs the database, as whoever has that has everything.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			base, err := url.Parse(address)
			if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
				return errors.New("--address must be the address of a server, such as http://127.0.0.1:8080")
			}
			db, err := t.database(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			secret, hash := desk.NewSecret()
			made, err := postgres.NewDesk(db).MakeLink(cmd.Context(), hash, desk.LinkLife, false)
			if err != nil {
				return err
			}
			if !made {
				return errors.New("there is no admin key in force: make one with fairlead keys create --role admin")
			}
			link := consoleLink(strings.TrimSuffix(base.String(), "/")+"/console/", secret)
			if t.json {
				return printJSON(cmd, map[string]string{"link": link, "expires_in": desk.LinkLife.String()})
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), link)
			return err
		},
	}
	t.bindDatabase(cmd)
	cmd.Flags().StringVar(&address, "address", "http://127.0.0.1:8080", "where the browser reaches the server")
	return cmd
}
