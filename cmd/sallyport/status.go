package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/approval/passkey"
	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/cedar"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/cmd/sallyport/deciding"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/mcpserver"
	"sallyport.dev/sallyport/redact/visible"
)

// public is what listens on TCP: the agents' door, the token endpoint, the
// admin API after a login, and the probes.
func (h *house) public() http.Handler {
	mux := http.NewServeMux()
	for _, p := range mcpserver.Patterns() {
		mux.Handle(p, h.door)
	}
	h.oauth.Routes(mux)
	mux.Handle("/api/v1/", h.admin)
	h.deciding.Routes(mux)
	mux.Handle("GET /console/{$}", http.RedirectHandler(passkey.PagePath, http.StatusFound)) // its one page so far
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	if h.config.Telemetry.Metrics {
		mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
			h.calls.ServeHTTP(w, r)
			h.deciding.Metrics(r.Context(), w)
		})
	}
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		state := h.readiness(r.Context())
		w.Header().Set("Content-Type", "application/json")
		if !state.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(state)
	})
	return h.hosts().Guard(mux)
}

func (h *house) hosts() mcpserver.HostPolicy {
	p := mcpserver.HostPolicy{Hosts: h.config.Hosts, Origins: h.config.Origins}
	if host, origin := deciding.Origin(h.config); host != "" {
		p.Hosts, p.Origins = append(slices.Clone(p.Hosts), host), append(slices.Clone(p.Origins), origin)
	}
	return p
}

// readiness is what /readyz shows.
type readiness struct {
	Ready    bool   `json:"ready"`
	Parsers  bool   `json:"parsers_warm"`
	Policy   string `json:"policy_version"`
	Sandbox  string `json:"sandbox"`          // "up", or why not
	Store    string `json:"store"`            // "up", or why not
	Reload   string `json:"reload,omitempty"` // that the last one was refused
	Stopping bool   `json:"stopping,omitempty"`
}

// noSandbox is said of a gateway that was started without a sandbox host.
const noSandbox = "none: code calls are refused"

func (h *house) readiness(ctx context.Context) readiness {
	r := readiness{Parsers: h.warm.Load(), Policy: h.policies.Version(), Sandbox: "up", Store: "up", Stopping: h.stopping.Load()}
	// A gateway that was started without a sandbox host is ready for what it
	// can do; one whose host broke is not.
	up := true
	if h.sandbox.Backend == nil {
		r.Sandbox = noSandbox
	} else if err := h.sandbox.Check(ctx); err != nil {
		r.Sandbox, up = err.Error(), false
	}
	reachable := h.store.Reachable(ctx)
	if reachable != nil {
		r.Store, _ = explain(reachable)
	}
	if h.stale.Load() {
		r.Reload = "refused: what was loaded before stays; the log says why"
	}
	r.Ready = r.Parsers && up && reachable == nil && !r.Stopping && r.Reload == ""
	return r
}

func (h *house) ready() bool { return h.readiness(context.Background()).Ready }

// reload reads the policies and the tools' manifests again: all of them, or
// nothing changes, and /readyz tells until a reload succeeds.
func (h *house) reload() error {
	h.reloading.Lock()
	defer h.reloading.Unlock()
	err := h.reloadAll()
	h.stale.Store(err != nil)
	if e, ok := errors.AsType[*sallyport.Error](err); ok {
		shown := *e
		shown.Message = everybodys(e.Message) + "; what was loaded before stays"
		return &shown
	}
	return err
}

func (h *house) reloadAll() error {
	manifests, err := catalog.LoadManifests(h.config.Tools)
	if err == nil {
		manifests, err = h.sandbox.fix(manifests)
	}
	if err == nil {
		err = h.catalog.SetManifests(manifests)
	}
	if err != nil {
		return err
	}
	if err := h.policies.Reload(); err != nil {
		return errors.Join(err, h.catalog.SetManifests(h.manifests))
	}
	if err := h.book.Load(h.config.Sagas.Plans); err != nil {
		return err
	}
	h.manifests = manifests
	return nil
}

// status is what `doctor` shows of a running gateway.
func (h *house) status(ctx context.Context) any {
	servers, _ := h.servers.ServerStatus(ctx)
	hooks, _ := h.deciding.ListWebhooks(ctx)
	return gatewayStatus{Passkeys: h.deciding.Passkeys(), Webhooks: hooks, Version: version(), MCPURL: h.base + "/mcp", Config: everybodys(h.config.File), UID: os.Geteuid(), Readiness: h.readiness(ctx), Servers: len(servers), Unisolated: unisolated(servers), Isolated: isolated(servers)}
}

type gatewayStatus struct {
	Version    string    `json:"version"`
	MCPURL     string    `json:"mcp_url"`
	Config     string    `json:"config"`
	UID        int       `json:"uid"`
	Readiness  readiness `json:"readiness"`
	Servers    int       `json:"servers"`
	Unisolated []string  `json:"servers_without_isolation"`

	Isolated map[string]string `json:"isolation"` // of each server that is a program

	Passkeys string                 `json:"passkeys"` // where they are used, or why not
	Webhooks []adminapi.WebhookInfo `json:"webhooks"`
}

// unisolated names the servers that run as the gateway's own user.
func unisolated(servers []adminapi.ServerStatus) (names []string) {
	for _, s := range servers {
		if s.Isolation == config.IsolationNone {
			names = append(names, s.Name)
		}
	}
	return names
}

// isolated says how each server that is a program is kept apart, and what of
// this host it is shown all the same.
func isolated(servers []adminapi.ServerStatus) map[string]string {
	out := map[string]string{}
	for _, s := range servers {
		if s.Command == "" || s.Isolation == config.IsolationNone {
			continue
		}
		out[s.Name] = "isolation " + s.Isolation
		if s.Isolation == config.IsolationGVisor {
			out[s.Name] += ", reaches " + anything(s.Reaches) + ", sees " + anything(s.Sees)
		}
	}
	return out
}

func anything(list []string) string {
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}

// version of this build.
func version() string {
	if i, ok := debug.ReadBuildInfo(); ok && i.Main.Version != "" && i.Main.Version != "(devel)" {
		return i.Main.Version
	}
	return "dev"
}

// A finding is one line of doctor.
type finding struct {
	What string `json:"what"`
	OK   bool   `json:"ok"`
	Said string `json:"said"`
	Hint string `json:"hint,omitempty"`
}

func (a *program) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Say what works here, what does not, and why", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f := a.examine(cmd.Context())
			err := a.Show(map[string]any{"findings": f}, func() error {
				for _, x := range f {
					mark := "ok  "
					if !x.OK {
						mark = "BAD "
					}
					fmt.Fprintf(a.Out, "%s %-18s %s\n", mark, x.What, visible.String(x.Said))
					if x.Hint != "" {
						fmt.Fprintf(a.Out, "     %-18s %s\n", "", visible.String(x.Hint))
					}
				}
				return nil
			})
			if err == nil && slices.ContainsFunc(f, func(x finding) bool { return !x.OK }) {
				return cli.Exit(cli.ExitUnavailable)
			}
			return err
		},
	}
}

func (a *program) examine(ctx context.Context) (all []finding) {
	add := func(what string, err error, said string) {
		f := finding{What: what, OK: err == nil, Said: said}
		if err != nil {
			f.Said, f.Hint = explain(err)
		}
		all = append(all, f)
	}
	_, err := ownerOf(a.Data)
	add("data folder", err, a.Data)
	store := "as the gateway was started" // where the file has been broken since
	images := []string{image.DefaultName}
	cfg, err := a.loadConfig(serveFlags{})
	add("configuration", err, filepath.Join(a.Data, "sallyport.yaml"))
	if err == nil {
		store = cfg.StoreName()
		images = append([]string{cfg.Sandbox.Image}, cfg.Sandbox.Images...)
		if p := cedar.Check(cfg.Policies); len(p) > 0 {
			add("policies", errors.New(p[0].String()), "")
		} else {
			add("policies", nil, cfg.Policies)
		}
		m, wrong := catalog.LoadManifests(cfg.Tools)
		add("tools", wrong, fmt.Sprintf("%s, manifests: %d", cfg.Tools, len(m)))
		for _, x := range m {
			images = append(images, cmp.Or(x.Rules.Image, cfg.Sandbox.Image))
		}
	}
	var st gatewayStatus
	err = a.API(ctx, "GET", "/status", nil, &st)
	// A sandbox host that somebody else started has images of its own.
	said, none := examineImages(images)
	if s := st.Readiness.Sandbox; none == nil || s != "up" && s != noSandbox {
		add("sandbox images", none, said)
	}
	add("gateway", err, fmt.Sprintf("%s as uid %d, policy version %s", st.MCPURL, st.UID, st.Readiness.Policy))
	if err != nil {
		return all
	}
	if s := st.Readiness.Store; s != "up" {
		add("store", &sallyport.Error{Message: s, Hint: "calls are refused until it answers; the gateway goes on by itself then"}, "")
	} else {
		add("store", nil, store)
	}
	switch s := st.Readiness.Sandbox; s {
	case "up":
		add("gvisor", nil, "a program ran in a sandbox just now")
	case noSandbox:
		add("gvisor", (&sandboxHost{}).missing(), "")
	default:
		add("gvisor", &sallyport.Error{Message: s, Hint: "code calls are refused until this is mended; there is no weaker way to run code"}, "")
	}
	all = append(append(all, ages()...), strongest(st.Readiness.Sandbox))
	if st.UID == os.Getuid() && st.UID == 0 {
		add("privileges", &sallyport.Error{Message: "the gateway runs as root", Hint: "start it with `sallyport serve`, which gives root up"}, "")
	}
	add("passkeys", nil, st.Passkeys)
	for _, w := range st.Webhooks {
		said, wrong := deciding.Finding(w)
		add("webhook "+w.Name, wrong, said)
	}
	for _, name := range slices.Sorted(maps.Keys(st.Isolated)) {
		add("server "+name, nil, st.Isolated[name])
	}
	for _, s := range st.Unisolated {
		add("server "+s, &sallyport.Error{Message: "runs as the gateway's own user: isolation none", Hint: "take the line out: in a sandbox is the default; isolation: uid is a user of its own"}, "")
	}
	return all
}

// examineImages checks the bytes of the images that are named, and tells what the
// whole cache takes.
func examineImages(names []string) (said string, err error) {
	store := image.NewStore(cli.CacheDir())
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		img, err := store.Open(name)
		if err != nil {
			return "", err
		}
		said += fmt.Sprintf("%s %.19s…, ", name, img.Digest)
	}
	all, err := store.List()
	if err != nil {
		return "", err
	}
	sizes := map[string]int64{}
	for _, l := range all {
		sizes[l.Digest] = l.Size
	}
	var total int64
	for _, n := range sizes {
		total += n
	}
	return fmt.Sprintf("%sall as built; the cache holds %d, %d MiB", said, len(sizes), total>>20), nil
}

func explain(err error) (said, hint string) {
	if e, ok := errors.AsType[*sallyport.Error](err); ok {
		return e.Message, e.Hint
	}
	return err.Error(), ""
}
