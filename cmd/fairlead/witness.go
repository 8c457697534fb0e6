package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"

	"github.com/fairlead-dev/fairlead/translog"
	"github.com/fairlead-dev/fairlead/translog/witness"
)

const (
	// witnessConnections bounds open connections: anybody may connect, and logs need one each.
	witnessConnections = 512
	// witnessHeaderTime is how long a client may take to send its headers, witnessTime all of its request, and to get the answer.
	witnessHeaderTime = 10 * time.Second
	witnessTime       = 30 * time.Second
	witnessIdleTime   = 2 * time.Minute
	// witnessGrace is how long requests under way may take after the command was ended.
	witnessGrace = 10 * time.Second
	// witnessHeaderBytes bounds headers. Nobody sends more than a few hundred bytes.
	witnessHeaderBytes = 16 << 10
)

// witnessOptions are the flags of witness.
type witnessOptions struct {
	key, name, state   string
	logs               []string
	listen, addrFile   string
	logFormat, logging string
	json               bool
}

func newWitness() *cobra.Command {
	var o witnessOptions
	cmd := &cobra.Command{
		Use:   "witness",
		Short: "Cosign the checkpoints of public logs, as a witness that their operators do not control",
		Long: "Cosign the checkpoints of public logs, as a witness that their operators do not control. A log sends its checkpoints to\n" +
			"POST /add-checkpoint (c2sp.org/tlog-witness). The witness cosigns one only if it extends the largest that it has cosigned\n" +
			"before, so that nobody can show two histories of a log to two readers who both ask for this witness's signature.\n\n" +
			"--key is made where it is not there, with the name that --name gives. The first line on standard output is the witness's\n" +
			"verifier key: readers and logs need it. --log is a log's verifier key, which a Fairlead server has at /log/key.\n\n" +
			"Keep --key and --state together, on a local disk, and run one process with them. Never start a key with an empty or older\n" +
			"state: the witness could cosign a second history. If either file is lost, make a new key.\n\n" +
			"It speaks plain HTTP: put a proxy with TLS before it. Ctrl-C and SIGTERM end it after the requests under way, with status 0.",
		Example: "  fairlead witness --key witness.key --name witness.example.com/w1 --state witness.json --log \"$(curl -fsS https://shop.example/log/key)\"\n" +
			"  fairlead witness --key witness.key --state witness.json --log VKEY --log VKEY --listen 0.0.0.0:8081",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.key, "key", "", "file of the witness's private key, of mode 0600; made where it is not there")
	f.Lookup("key").Annotations = map[string][]string{flagOnly: nil} // That variable holds the key with which other verbs ask a server.
	f.StringVar(&o.name, "name", "", "name of a key that is made, like a URL without a scheme, such as witness.example.com/w1; it stands before each cosignature")
	f.StringVar(&o.state, "state", "", "file of the largest checkpoint of each log that was cosigned")
	f.StringArrayVar(&o.logs, "log", nil, "verifier key of a log whose checkpoints are cosigned; may be given several times")
	f.StringVar(&o.listen, "listen", "127.0.0.1:8081", "address to listen on; port 0 takes a free one")
	f.StringVar(&o.addrFile, "addr-file", "", "file to write the address to, once listening")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	f.StringVar(&o.logging, "log-level", "info", "debug, info, warn or error; debug names each size that is cosigned, warn each refusal")
	f.BoolVar(&o.json, "json", false, "print one JSON document, verifier and url, in place of the verifier key's line")
	return cmd
}

// run runs the witness until the command is ended.
func (o *witnessOptions) run(cmd *cobra.Command) error {
	for _, needed := range []struct{ flag, value string }{{"--key", o.key}, {"--state", o.state}, {"--log", strings.Join(o.logs, "")}} {
		if needed.value == "" {
			return fmt.Errorf("%w: witness needs %s", errUsage, needed.flag)
		}
	}
	logger, err := newLogger(o.logFormat, o.logging)
	if err != nil {
		return err
	}
	// Each flag may hold several, separated by white space, as the environment gives them.
	logs := strings.Fields(strings.Join(o.logs, " "))
	for _, vkey := range logs {
		if _, err := translog.LogKeyName(vkey); err != nil {
			return fmt.Errorf("--log: %w", err)
		}
	}
	key, err := o.ensureKey()
	if err != nil {
		return err
	}
	w, err := witness.New(witness.Options{Key: key, KeyFile: o.key, StateFile: o.state, Logs: logs, Logger: logger})
	if err != nil {
		return err
	}
	defer w.Close()
	ctx := cmd.Context()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return &optionError{option: "Listen", err: err}
	}
	if o.addrFile != "" {
		if err := writeWhole(o.addrFile, listener.Addr().String()+"\n"); err != nil {
			return errors.Join(fmt.Errorf("--addr-file: %w", err), listener.Close())
		}
	}
	found := map[string]string{"verifier": key.Verifier(), "url": "http://" + listener.Addr().String()}
	if err := show(cmd, o.json, found, func(out io.Writer) { _, _ = fmt.Fprintln(out, key.Verifier()) }); err != nil {
		return errors.Join(err, listener.Close())
	}
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "fairlead witness listens at http://%s, keys of logs: %d\n", listener.Addr(), len(logs))
	return serveWitness(ctx, w, listener, logger)
}

// serveWitness answers until the context ends, and then the requests under way.
func serveWitness(ctx context.Context, w *witness.Witness, listener net.Listener, logger *slog.Logger) error {
	srv := &http.Server{
		Handler: w, ReadHeaderTimeout: witnessHeaderTime, ReadTimeout: witnessTime, WriteTimeout: witnessTime, IdleTimeout: witnessIdleTime,
		MaxHeaderBytes: witnessHeaderBytes, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(netutil.LimitListener(listener, witnessConnections)) }()
	tellSupervisor(ctx, logger, daemon.SdNotifyReady)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), witnessGrace)
	defer cancel()
	tellSupervisor(grace, logger, daemon.SdNotifyStopping)
	return srv.Shutdown(grace)
}

// ensureKey reads the key, or makes it where there is none.
func (o *witnessOptions) ensureKey() (*translog.Cosigner, error) {
	key, err := translog.ReadCosigner(o.key)
	if err == nil {
		if o.name != "" && o.name != key.Name() {
			return nil, fmt.Errorf("--name: the key in %s has the name %s, for ever: leave --name out", o.key, key.Name())
		}
		return key, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("--key: %w", err)
	}
	if _, err := os.Lstat(o.state); !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("--key: there is no %s, but there is its state, %s: put the key back; if it is lost, move the state away and make a new key with another name", o.key, o.state)
	}
	if o.name == "" {
		return nil, fmt.Errorf("--key: there is no %s: to make one, give its name, such as --name witness.example.com/w1", o.key)
	}
	if key, err = translog.GenerateCosigner(o.name); err != nil {
		return nil, fmt.Errorf("--name: %w", err)
	}
	if err := key.WriteFile(o.key); err != nil {
		return nil, fmt.Errorf("--key: %w", err)
	}
	return key, nil
}
