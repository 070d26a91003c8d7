package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/cedar"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/cmd/sallyport/age"
	"sallyport.dev/sallyport/cmd/sallyport/deciding"
	"sallyport.dev/sallyport/cmd/sallyport/host"
	"sallyport.dev/sallyport/cmd/sallyport/whole"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/redact/visible"
)

// A finding is one line of doctor and verify.
type finding = whole.Finding

func (a *program) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Say what works here, what does not, and why", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f := a.examine(cmd.Context())
			err := a.Show(map[string]any{"findings": f}, func() error { a.showFindings(f); return nil })
			if err == nil && slices.ContainsFunc(f, func(x finding) bool { return !x.OK }) {
				return cli.Exit(cli.ExitUnavailable)
			}
			return err
		},
	}
}

func (a *program) showFindings(f []finding) {
	for _, x := range f {
		mark := "ok  "
		switch {
		case !x.OK:
			mark = "BAD "
		case x.Lacking:
			mark = "none"
		}
		fmt.Fprintf(a.Out, "%s %-18s %s\n", mark, visible.String(x.What), visible.String(x.Said))
		if x.Hint != "" {
			fmt.Fprintf(a.Out, "     %-18s %s\n", "", visible.String(x.Hint))
		}
	}
}

// A checkup collects findings.
type checkup struct{ all []finding }

func (c *checkup) add(what string, err error, said string) {
	f := finding{What: what, OK: err == nil, Said: said}
	if err != nil {
		f.Said, f.Hint = cli.Said(err)
	}
	c.all = append(c.all, f)
}

// examine looks at what the files say, and then at the gateway that runs on them.
func (a *program) examine(ctx context.Context) []finding {
	var c checkup
	store, images := a.examineFiles(&c)
	var st gatewayStatus
	err := a.API(ctx, "GET", "/status", nil, &st)
	// A sandbox host that somebody else started has images of its own.
	said, none := examineImages(images)
	if s := st.Readiness.Sandbox; none == nil || s != "up" && s != noSandbox {
		c.add("sandbox images", none, said)
	}
	if self, err := os.Executable(); err == nil {
		said, wrong := whole.Programs(filepath.Dir(self), "sallyport-sandboxd", gvisor.RuntimeProgram, "sallyport-init", "sallyport-cage", "sallyport-guest", "sallyport-wasm")
		c.add("programs", wrong, said)
	}
	c.add("gateway", err, fmt.Sprintf("%s as uid %d, policy version %s", st.MCPURL, st.UID, st.Readiness.Policy))
	if err != nil {
		return c.all
	}
	if s := st.Readiness.Store; s != "up" {
		c.add("store", &sallyport.Error{Message: s, Hint: "calls are refused until it answers; the gateway goes on by itself then"}, "")
	} else {
		c.add("store", nil, store)
	}
	if st.Readiness.Sandbox == noSandbox {
		c.add("gvisor", (&host.Host{}).Missing(), "")
		c.all = append(c.all, whole.NoTier())
	} else {
		c.all = append(c.all, whole.Tiers(ctx, &a.App)...)
	}
	if st.Sessions != "" {
		c.add("sessions", nil, st.Sessions)
	}
	c.all = append(c.all, ages(ctx)...)
	if st.UID == os.Getuid() && st.UID == 0 {
		c.add("privileges", &sallyport.Error{Message: "the gateway runs as root", Hint: "start it with `sallyport serve`, which gives root up"}, "")
	}
	c.all = append(append(c.all, whole.Tools(ctx, &a.App)...), finding{What: "passkeys", OK: true, Said: st.Passkeys})
	for _, w := range st.Webhooks {
		said, wrong := deciding.Finding(w)
		c.add("webhook "+w.Name, wrong, said)
	}
	c.all = append(c.all, whole.Servers(ctx, &a.App)...)
	for _, name := range slices.Sorted(maps.Keys(st.Isolated)) {
		c.add("server "+name, nil, st.Isolated[name])
	}
	for _, name := range slices.Sorted(maps.Keys(st.Logins)) {
		var missing error
		if wants := st.Logins[name]; wants != "" {
			missing = &sallyport.Error{Message: wants, Hint: "`sallyport servers login " + name + "` prints the address that somebody opens"}
		}
		c.add("login at "+name, missing, "authorised")
	}
	for _, s := range st.Unisolated {
		c.add("server "+s, &sallyport.Error{Message: "runs as the gateway's own user: isolation none", Hint: "take the line out: in a sandbox is the default; isolation: uid is a user of its own"}, "")
	}
	return c.all
}

// examineFiles looks at the data folder. store says which database is configured;
// images are those that are named anywhere.
func (a *program) examineFiles(c *checkup) (store string, images []string) {
	_, err := ownerOf(a.Data)
	c.add("data folder", err, a.Data)
	cfg, err := a.loadConfig(serveFlags{})
	c.add("configuration", err, filepath.Join(a.Data, "sallyport.yaml"))
	if err != nil {
		return "as the gateway was started", []string{image.DefaultName} // the file has been broken since
	}
	images = append([]string{cfg.Sandbox.Image}, cfg.Sandbox.Images...)
	if p := cedar.Check(cfg.Policies); len(p) > 0 {
		c.add("policies", errors.New(p[0].String()), "")
	} else {
		c.add("policies", nil, cfg.Policies)
	}
	m, wrong := catalog.LoadManifests(cfg.Tools)
	c.add("tools", wrong, fmt.Sprintf("%s, manifests: %d", cfg.Tools, len(m)))
	for _, x := range m {
		images = append(images, cmp.Or(x.Rules.Image, cfg.Sandbox.Image))
	}
	return cfg.StoreName(), images
}

// ages tells how old what runs sandboxes is. It is advice, and never a fault.
func ages(ctx context.Context) (all []finding) {
	self, _ := os.Executable() // what is beside it is of an unknown version then
	rows, err := age.Found(ctx, filepath.Dir(self), cli.CacheDir())
	if err != nil {
		return []finding{{What: "versions", Said: err.Error()}}
	}
	for _, r := range rows {
		all = append(all, finding{What: r.What, OK: true, Said: r.Said, Hint: r.Hint, Lacking: r.Lacking})
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
