package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/pause"
)

// serveFlags are the flags of serve, as given.
type serveFlags struct {
	config, listen string
	homes          string // of third-party servers, for the first stage only
	welcome        bool
}

func (f serveFlags) argv() (argv []string) {
	if f.listen != "" {
		argv = append(argv, "--listen", f.listen)
	}
	if f.welcome {
		argv = append(argv, "--welcome")
	}
	return argv
}

func (a *program) serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the gateway", Args: cobra.NoArgs,
		Long: "Run the gateway. Started as root it starts the sandbox host first, then gives up every privilege for good.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.config != "" {
				var err error
				if f.config, err = filepath.Abs(f.config); err != nil {
					return err
				}
			}
			if os.Geteuid() == 0 && os.Getenv(envStage) != "2" {
				return a.serveAsRoot(f)
			}
			return a.serve(cmd.Context(), f)
		},
	}
	cmd.Flags().StringVar(&f.config, "config", "", "configuration file (default: sallyport.yaml in the data folder)")
	cmd.Flags().StringVar(&f.listen, "listen", "", "HOST:PORT (default: the configuration's, 127.0.0.1:7450)")
	cmd.Flags().StringVar(&f.homes, "server-homes", "", "folder of the servers' homes")
	_ = cmd.Flags().MarkHidden("server-homes") // a throw-away gateway leaves nothing behind
	cmd.Flags().BoolVar(&f.welcome, "welcome", false, "print a token and what to try next")
	return cmd
}

// serveAsRoot is the first stage; see stage_privileged.go.
func (a *program) serveAsRoot(f serveFlags) error {
	if _, err := ownerOf(a.Data); err != nil {
		return err
	}
	cfg, err := a.loadConfig(f) // before anything is started
	if err != nil {
		return err
	}
	l, err := lock(a.Data)
	if err != nil {
		return err
	}
	l.Close() // the second stage takes it for good
	if err := closeInherited(); err != nil {
		return err
	}
	sandboxd, pid, err := startSandboxd(sandboxdArgs(f.homesOf(a.Data), a.Data, cfg)...)
	if err != nil {
		fmt.Fprintf(a.Err, "sallyport: no sandbox host, so code calls will be refused: %v\n", err)
	}
	return drop(a.Data, f.config, f.argv(), sandboxd, pid)
}

// homesOf is the folder of the servers' homes. Each data folder has its own.
func (f serveFlags) homesOf(data string) string {
	if f.homes != "" {
		return f.homes
	}
	sum := sha256.Sum256([]byte(data))
	return filepath.Join("/var/lib/sallyport-sandboxd", hex.EncodeToString(sum[:8]))
}

// sandboxdArgs are the sandbox host's flags.
func sandboxdArgs(homes, data string, c *config.Config) []string {
	s := c.Sandbox.Sessions
	return []string{
		"-state", homes, "-closed", data,
		"-cache", cli.CacheDir(), "-max-runs", strconv.Itoa(c.Sandbox.Runs), "-queue", strconv.Itoa(c.Sandbox.Queue), "-warm", strconv.Itoa(c.Sandbox.Warm), "-tiers", strings.Join(c.Sandbox.Tiers, ","),
		"-sessions", strconv.Itoa(s.Count), "-sessions-of", strconv.Itoa(s.PerAgent), "-session-rest", s.Rest.String(), "-session-idle", s.Idle.String(), "-session-life", s.Life.String(),
		"-egress-private", strings.Join(c.Egress.Private, ","), "-egress-own", c.Listen,
	}
}

// loadConfig reads the configuration that serve would use.
func (a *program) loadConfig(f serveFlags) (*config.Config, error) {
	path := f.config
	if path == "" {
		path = filepath.Join(a.Data, "sallyport.yaml")
	}
	c, err := config.Load(path)
	if err != nil {
		return nil, err
	}
	if f.listen != "" {
		c.Listen = f.listen
	}
	return c, unbuilt(c)
}

// lock makes this process the only gateway on the data folder.
func lock(data string) (*os.File, error) {
	path := filepath.Join(data, "serve.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600) // root opens it in a folder that others write
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, &sallyport.Error{Code: sallyport.Unavailable, Message: "another gateway serves " + data,
			Hint: "stop it first, or use another data folder"}
	}
	return f, nil
}

// serve is the gateway itself, without privileges.
func (a *program) serve(ctx context.Context, f serveFlags) error {
	if _, err := ownerOf(a.Data); err != nil {
		return err
	}
	unix.Umask(0o077)
	collect(ctx)
	a.Err = outsideWriter{a.Err}
	held, err := lock(a.Data)
	if err != nil {
		return err
	}
	defer held.Close()
	cfg, err := a.loadConfig(f)
	if err != nil {
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Telemetry.Log)); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(a.Err, &slog.HandlerOptions{Level: level}))
	ctx, end := context.WithCancel(ctx)
	defer end()
	h, err := a.house(ctx, cfg, log)
	if err != nil {
		return err
	}
	err = a.listen(ctx, h, f, log)
	end() // what goes on beside the calls does not complain of what is closed
	return errors.Join(err, h.close())
}

// listen serves both doors until ctx ends, then lets calls finish.
func (a *program) listen(ctx context.Context, h *house, f serveFlags, log *slog.Logger) error {
	tcp, err := (&net.ListenConfig{}).Listen(ctx, "tcp", h.config.Listen)
	if err != nil {
		return &sallyport.Error{Code: sallyport.Unavailable, Message: fmt.Sprintf("cannot listen on %s: %v", h.config.Listen, reason(err)), Err: err,
			Hint: "end the program that is there, or name another HOST:PORT with --listen"}
	}
	socket, err := adminapi.Listen(filepath.Join(a.Data, "admin.sock"))
	if err != nil {
		tcp.Close()
		return err
	}
	agents := &http.Server{Handler: h.public(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, DisableGeneralOptionsHandler: true, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	admins := &http.Server{Handler: h.admin, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	ended := make(chan error, 2)
	go func() { ended <- agents.Serve(tcp) }()
	go func() { ended <- admins.Serve(socket) }()
	go a.announce(ctx, h, f)
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	for {
		select {
		case <-reload:
			if err := h.reload(); err != nil {
				log.Error("reload refused, what was loaded stays", "err", err)
			}
			continue
		case err = <-ended:
		case <-ctx.Done():
			err = nil
		}
		break
	}
	log.Info("stopping: calls that are on their way have 10 s to finish")
	grace, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	h.stopping.Store(true)
	if hub := h.changes.Load(); hub != nil {
		hub.Close() // streams that tell of changes would never end by themselves
	}
	_ = errors.Join(agents.Shutdown(grace), admins.Shutdown(grace)) // what is left is closed below
	agents.Close()
	admins.Close()
	return err
}

// announce says where the gateway is, once it is ready.
func (a *program) announce(ctx context.Context, h *house, f serveFlags) {
	for !h.ready() {
		if !pause.For(ctx, 50*time.Millisecond) {
			return
		}
	}
	fmt.Fprintf(a.Out, "sallyport: ready, MCP URL %s/mcp\n", h.base)
	if !f.welcome {
		return
	}
	token, expires, err := h.agents.Issue(ctx, "agent", "", "make run")
	if err != nil {
		fmt.Fprintf(a.Out, "no token: %v\n", err)
		return
	}
	export := "" // a shell that does not know the data folder finds another
	if data := os.Getenv("SALLYPORT_DATA"); data != "" {
		export = "\n  export SALLYPORT_DATA=" + cli.CommandLine("", []string{data})
	}
	fmt.Fprintf(a.Out, `
  MCP URL   %s/mcp
  token     %s
            (agent "agent", until %s; bin/sallyport token prints a new one)

try next, in another shell:%s
  bin/sallyport call run_python '{"code":"print(6*7)"}'
  bin/sallyport risk sql 'DROP TABLE orders'
  bin/sallyport saga run docs/examples/undo.yaml --wait 1m     a saga: its second step fails, so its first is undone
  bin/sallyport servers add everything -- npx -y @modelcontextprotocol/server-everything   (needs Node.js)
  bin/sallyport call everything__echo '{"message":"DROP TABLE orders"}'     an approval: it waits for a human
  bin/sallyport login && bin/sallyport approvals list     be that human (the password is what init showed), then approvals show, approve or reject
  bin/sallyport tools list
  bin/sallyport audit search
  bin/sallyport doctor
  an MCP client that speaks stdio: command "bin/sallyport", args ["stdio"]

Ctrl-C stops it.
`, h.base, token, expires.Local().Format("15:04"), export)
}

// reason is what a network error says besides the address.
func reason(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		err = op.Err
	}
	if call, ok := errors.AsType[*os.SyscallError](err); ok {
		err = call.Err
	}
	return err
}
