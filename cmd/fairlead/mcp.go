package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/mcp"
)

// mcpTokenVariable holds the token that agents need over HTTP.
const mcpTokenVariable = "FAIRLEAD_MCP_TOKEN" //nolint:gosec // The name of a variable.

const (
	// mcpAttempts and mcpRetryFor bound how long a tool tries by itself: the agent can call again.
	mcpAttempts = 4
	mcpRetryFor = 10 * time.Second
	// mcpGrace is how long calls under way may take after the command was ended, or its standard input.
	mcpGrace = 10 * time.Second
	// mcpHeaderTime is how long a client may take to send its headers, mcpReadTime all of its request, and mcpAnswerTime to get the
	// answer, which is longer than any tool takes.
	mcpHeaderTime = 10 * time.Second
	mcpReadTime   = time.Minute
	mcpAnswerTime = 5 * time.Minute
)

func newMCP() *cobra.Command {
	var (
		t           target
		writes      bool
		address     string
		preparedFor time.Duration
	)
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Let an agent use a server, by the Model Context Protocol",
		Long: "Let an agent use a server, by the Model Context Protocol. The agent's host starts this command and talks to it over\n" +
			"standard input and output. With --http, agents reach it over streamable HTTP at /mcp instead.\n\n" +
			"The tools read accounts, entries, holds, transfers, campaigns, draws and their proofs, auctions, publications, locks and\n" +
			"the state of the books. They can change nothing unless --allow-writes is given. Then a tool prepare_… describes a\n" +
			"change, with who pays whom, balances and what would refuse it, and returns an id; the tool commit carries it out. The\n" +
			"id is the idempotency key, so a commit that is repeated, at once or after a crash, has its effect once. Prepared\n" +
			"commands expire after --prepared-for.\n\n" +
			"An agent has all rights of the key in " + keyVariable + ": give it a key of its own, of the role reader if it only reads.\n" +
			"On other than a loopback address, --http needs a token of 32 or more characters in " + mcpTokenVariable + ", which agents\n" +
			"send as their bearer token. Every agent that can reach it uses the same key.",
		Example: "  fairlead mcp                                # as an agent's host starts it: {\"command\": \"fairlead\", \"args\": [\"mcp\"]}\n" +
			"  fairlead mcp --url https://fairlead.example --allow-writes\n" +
			"  fairlead mcp --http 127.0.0.1:8090 --allow-writes",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if preparedFor < mcp.MinPreparedFor || preparedFor > mcp.MaxPreparedFor {
				return fmt.Errorf("--prepared-for must be between %s and %s", mcp.MinPreparedFor, mcp.MaxPreparedFor)
			}
			if err := t.findServer(cmd); err != nil {
				return err
			}
			c, err := t.server(client.WithRetry(client.Retry{Attempts: mcpAttempts, Limit: mcpRetryFor}))
			if err != nil {
				return err
			}
			server, err := mcp.New(mcp.Options{
				Client: c, URL: t.url, Credential: t.credential(), AllowWrites: writes, PreparedFor: preparedFor, Version: fairlead.Version(),
			})
			if err != nil {
				return err
			}
			if t.json {
				return describeMCP(cmd, server)
			}
			if address != "" {
				return serveMCP(cmd, server, address)
			}
			if err = server.Run(cmd.Context(), mcp.Answering{Transport: mcp.Lines(cmd.InOrStdin(), cmd.OutOrStdout()), Grace: mcpGrace}); errors.Is(err, context.Canceled) {
				err = nil // It was ended, which is a success.
			}
			return err
		},
	}
	f := cmd.Flags()
	t.bindServer(f)
	f.BoolVar(&t.json, "json", false, "print one JSON document of the tools that agents get, and end")
	f.BoolVar(&writes, "allow-writes", false, "add the tools that prepare and commit changes; without it they do not exist")
	f.DurationVar(&preparedFor, "prepared-for", mcp.DefaultPreparedFor, "how long a prepared command can be committed, 1s to 1h; the server must keep keys for an hour longer (--idempotency-retention of serve)")
	f.StringVar(&address, "http", "", "address to serve streamable HTTP on at /mcp, such as 127.0.0.1:8090, in place of standard input and output; beyond loopback it needs a token in "+mcpTokenVariable)
	return cmd
}

// describeMCP prints the tools of a server as agents get them.
func describeMCP(cmd *cobra.Command, server *sdk.Server) error {
	ctx := cmd.Context()
	here, there := sdk.NewInMemoryTransports()
	serving, err := server.Connect(ctx, there, nil)
	if err != nil {
		return err
	}
	defer func() { _ = serving.Close() }()
	asking, err := sdk.NewClient(&sdk.Implementation{Name: "fairlead", Version: fairlead.Version()}, nil).Connect(ctx, here, nil)
	if err != nil {
		return err
	}
	defer func() { _ = asking.Close() }()
	tools := []*sdk.Tool{}
	for tool, err := range asking.Tools(ctx, nil) {
		if err != nil {
			return err
		}
		tools = append(tools, tool)
	}
	return printJSON(cmd, map[string]any{"tools": tools})
}

// serveMCP serves agents over HTTP until the command is ended.
func serveMCP(cmd *cobra.Command, server *sdk.Server, address string) error {
	token := os.Getenv(mcpTokenVariable)
	if token != "" && auth.ValidAdminKey(token) != nil {
		return fmt.Errorf("%s must be 32 to 4,096 visible ASCII characters", mcpTokenVariable)
	}
	ctx := cmd.Context()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	if tcp, ok := listener.Addr().(*net.TCPAddr); token == "" && (!ok || !tcp.IP.IsLoopback()) {
		return errors.Join(fmt.Errorf("--http %s can be reached from other machines, so it needs a token in %s, such as %[2]s=$(openssl rand -hex 32)", address, mcpTokenVariable), listener.Close())
	}
	logger := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	srv := &http.Server{
		Handler: mcp.Handler(server, token, logger), ReadHeaderTimeout: mcpHeaderTime, ReadTimeout: mcpReadTime, WriteTimeout: mcpAnswerTime, IdleTimeout: mcpAnswerTime,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "fairlead mcp listens at http://%s%s\n", listener.Addr(), mcp.Path)
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), mcpGrace)
	defer cancel()
	return srv.Shutdown(grace)
}
