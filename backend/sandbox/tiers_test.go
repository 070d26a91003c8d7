package sandbox_test

import (
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/sandbox"
	"sallyport.dev/sallyport/sandboxd"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/session"
)

// played is a tier that runs nothing, and remembers what it was asked.
type played struct {
	tier.Tier
	lack error
	says tier.Result

	mu     sync.Mutex
	probes int
	asked  []tier.Request
}

func (p *played) Probe(context.Context, string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probes++
	return "played", p.lack
}

func (p *played) Run(_ context.Context, r tier.Request) (tier.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, r)
	return p.says, p.lack
}

func (*played) List() []tier.Running { return nil }

// playing is a backend of a host with these tiers.
func playing(t *testing.T, tiers map[string]tier.Tier, alter ...func(*sandbox.Options)) *sandbox.Backend {
	t.Helper()
	b, _ := hosted(t, tiers, alter...)
	return b
}

// hosted also gives what ends the host.
func hosted(t *testing.T, tiers map[string]tier.Tier, alter ...func(*sandbox.Options)) (b *sandbox.Backend, end func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	x := session.Open(session.Config{Max: 1, PerOwner: 1, Idle: time.Hour, Life: time.Hour, Dir: t.TempDir()})
	t.Cleanup(x.Close)
	g := sandboxd.NewServer(sandboxd.Config{Tiers: tiers, Sessions: x}).Register()
	go g.Serve(l) //nolint:errcheck // it ends when it is stopped
	t.Cleanup(g.Stop)
	var o sandbox.Options
	for _, f := range alter {
		f(&o)
	}
	if b, err = sandbox.Dial(path, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b, g.Stop
}

// A tier that is lacking makes no gateway unready, is told with its reason, and
// is not asked again at once; one that works is proven once.
func TestTiersAreProvenApart(t *testing.T) {
	lack := tier.Unavailable("apt-get install qemu-system-x86", "no QEMU")
	g, m := &played{}, &played{lack: lack}
	b := playing(t, map[string]tier.Tier{sallyport.TierGVisor: g, sallyport.TierMicroVM: m})
	if m.probes != 0 {
		t.Error("it was opened before anybody needed it")
	}
	for range 3 {
		if err := b.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.Lack(t.Context(), sallyport.TierGVisor); err != nil {
			t.Fatal(err)
		}
		err, ok := b.Lack(t.Context(), sallyport.TierMicroVM).(*sallyport.Error)
		if !ok || err.Code != sallyport.Unavailable || err.Message != "no QEMU" || err.Hint != lack.Hint {
			t.Fatalf("%+v", err)
		}
	}
	if g.probes != 1 || m.probes != 1 {
		t.Errorf("probed %d and %d times", g.probes, m.probes)
	}
	for _, s := range b.Tiers(t.Context()) {
		if (s.Lack == nil) != (s.Tier == sallyport.TierGVisor) || s.Lack == nil && s.Proof != "played" {
			t.Errorf("%+v", s)
		}
	}
	// What worked and does not any more is proven again.
	g.mu.Lock()
	g.lack = tier.Unavailable("look", "its kernel is gone")
	g.mu.Unlock()
	if _, err := b.Exec(t.Context(), sandbox.Command{Argv: []string{"true"}}); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Fatal(err)
	}
	if err := b.Lack(t.Context(), sallyport.TierGVisor); err == nil || g.probes != 2 {
		t.Errorf("%v after %d probes", err, g.probes)
	}
}

// A host that is not there lacks no tier: its calls fail, and none goes elsewhere
// for it.
func TestHostThatIsGoneLacksNothing(t *testing.T) {
	b, err := sandbox.Dial(filepath.Join(t.TempDir(), "none"), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Lack(t.Context(), sallyport.TierGVisor); err != nil {
		t.Error(err)
	}
	if err := b.Check(t.Context()); err == nil {
		t.Error("it is ready")
	}
}

// What was proven of a host that has ended since is not told as if it were so.
func TestProofsEndWithTheHost(t *testing.T) {
	b, end := hosted(t, map[string]tier.Tier{sallyport.TierGVisor: &played{}})
	if s := b.Tiers(t.Context())[slices.Index(sallyport.Tiers(), sallyport.TierGVisor)]; s.Lack != nil {
		t.Fatal(s.Lack)
	}
	end()
	for _, s := range b.Tiers(t.Context()) {
		if s.Lack == nil {
			t.Errorf("%s: %s", s.Tier, s.Proof)
		}
	}
}

// A session runs in gVisor or a microVM and nowhere else: a request for one that names another
// tier is refused, by the host too.
func TestSessionsOfOtherTiersAreRefused(t *testing.T) {
	iso := &played{}
	b := playing(t, map[string]tier.Tier{sallyport.TierIsolate: iso})
	_, err := b.Exec(t.Context(), sandbox.Command{Tier: sallyport.TierIsolate, Session: &sandbox.SessionRun{Owner: "o", Name: "s", Language: "python", Code: "1"}})
	if sallyport.CodeOf(err) != sallyport.Invalid || len(iso.asked) > 0 {
		t.Errorf("%v, %v", err, iso.asked)
	}
}

// How code reaches each tier: as a module where the tier is a runtime, else as a
// file of an image.
func TestCodeIsPlacedByTier(t *testing.T) {
	iso, gv := &played{says: tier.Result{ID: "i", Stdout: []byte("ok\n")}}, &played{says: tier.Result{ID: "g", Receipt: sallyport.Receipt{Tier: "microvm", Accel: "tcg"}}}
	b := playing(t, map[string]tier.Tier{sallyport.TierGVisor: gv, sallyport.TierMicroVM: gv, sallyport.TierIsolate: iso})
	run := func(tool sallyport.Tool, in, args string) map[string]any {
		t.Helper()
		out, err := b.Run(t.Context(), sallyport.Job{
			Tool: tool, Args: json.RawMessage(args), Tier: in, TierReason: "because", Limits: sallyport.DefaultLimits(), Notify: func(sallyport.Notice) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		var r struct {
			Structured map[string]any `json:"structuredContent"`
		}
		if err := json.Unmarshal(out.Content, &r); err != nil {
			t.Fatal(err)
		}
		return r.Structured
	}
	js := toolNamed(t, "run_javascript")
	f := run(js, sallyport.TierIsolate, `{"code":"console.log(1)","stdin":"x","files":{"a.txt":"b"}}`)
	r := iso.asked[0]
	if r.Module == nil || r.Module.Language != "javascript" || string(r.Module.Code) != "console.log(1)" || !slices.Equal(r.Argv, []string{"main.js"}) ||
		string(r.Stdin) != "x" || len(r.Files) != 1 || len(r.Env) != 0 {
		t.Errorf("%+v", r)
	}
	if f["tier"] != "isolate" || f["tier_reason"] != "because" || f["stdout"] != "ok\n" {
		t.Errorf("%v", f)
	}
	light := sallyport.Tool{
		Name: "sum", Code: &sallyport.Script{Language: "javascript", Source: "export default ({a}) => a"}, Manifest: sallyport.Manifest{Trust: "light"},
	}
	run(light, sallyport.TierIsolate, `{"a":1}`)
	if r := iso.asked[1]; string(r.Module.Code) != light.Code.Source || string(r.Stdin) != `{"a":1}` {
		t.Errorf("%+v", r)
	}
	f = run(light, sallyport.TierMicroVM, `{"a":1}`)
	r = gv.asked[0]
	var names []string
	for _, f := range r.Files {
		names = append(names, f.Path)
	}
	slices.Sort(names)
	if r.Module != nil || strings.Join(r.Argv, " ") != "node light.mjs" || strings.Join(names, " ") != "light.mjs main.mjs" || string(r.Stdin) != `{"a":1}` {
		t.Errorf("%+v", r)
	}
	if f["accelerator"] != "tcg" {
		t.Errorf("%v", f)
	}
	gpu := sallyport.Tool{Name: "train", Code: &sallyport.Script{Language: "python", Source: "1"}, Manifest: sallyport.Manifest{GPU: true}}
	run(gpu, sallyport.TierGVisor, `{}`)
	if !gv.asked[1].GPU || gv.asked[0].GPU {
		t.Error("the GPU is not asked for where it is wanted, or elsewhere too")
	}
}
