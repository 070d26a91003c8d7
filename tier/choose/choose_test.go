package choose

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
)

const (
	microvm = sallyport.TierMicroVM
	gvisor  = sallyport.TierGVisor
	isolate = sallyport.TierIsolate
	wasm    = sallyport.TierWasm
)

// without is a host that lacks some tiers.
func without(tiers ...string) func(string) error {
	return func(t string) error {
		if slices.Contains(tiers, t) {
			return &sallyport.Error{Code: sallyport.Unavailable, Message: "no engine for it", Hint: "install one"}
		}
		return nil
	}
}

func TestTable(t *testing.T) {
	for _, c := range []struct {
		name   string
		need   Need
		lacks  string
		tier   string
		reason string // part of it, or of the error's message
		code   sallyport.Code
	}{
		{"untrusted", Need{Trust: "untrusted", Language: "python"}, "", microvm, "trust untrusted demands microvm", ""},
		{"agent", Need{Trust: "agent", Language: "python"}, "", gvisor, "trust agent demands gvisor", ""},
		{"nothing said", Need{Language: "shell"}, "", gvisor, "trust agent demands gvisor", ""},
		{"light JavaScript", Need{Trust: "light", Language: "javascript"}, "", isolate, "trust light, and it is JavaScript", ""},
		{"light module", Need{Trust: "light", Language: "wasm"}, "", wasm, "WASI module", ""},
		{"module", Need{Language: "wasm"}, "", wasm, "WASI module", ""},
		{"module of an agent", Need{Trust: "agent", Language: "wasm"}, "", "", "trust agent demands gvisor", sallyport.Invalid},
		{"untrusted module", Need{Trust: "untrusted", Language: "wasm"}, "", "", "microvm runs programs of an image", sallyport.Invalid},
		{"light Python", Need{Trust: "light", Language: "python"}, "", gvisor, "only JavaScript and WASI modules", ""},
		{"light and long", Need{Trust: "light", Language: "javascript", Timeout: time.Minute}, "", gvisor, "short work only", ""},
		{"light with an image", Need{Trust: "light", Language: "javascript", Image: true}, "", gvisor, "isolate has no images", ""},
		{"light with a session", Need{Trust: "light", Language: "javascript", Session: true}, "", gvisor, "sessions are kept in gvisor, unless a call names microvm", ""},
		{"gpu", Need{Language: "python", GPU: true}, "", gvisor, "gpu demands gvisor", ""},
		{"gpu, and there is none", Need{Language: "python", GPU: true, Tiers: []string{gvisor, microvm}}, "gpu", "", "tier gvisor cannot run here: no engine for it (gpu demands gvisor)", sallyport.Unavailable},
		{"untrusted gpu", Need{Trust: "untrusted", Language: "python", GPU: true}, "", "", "microvm has no GPU", sallyport.Invalid},
		{"gpu, and only microvm", Need{Language: "python", GPU: true, Tiers: []string{microvm}}, "", "", "microvm has no GPU", sallyport.Invalid},
		{"untrusted session", Need{Trust: "untrusted", Language: "python", Session: true}, "", microvm, "trust untrusted demands microvm", ""},
		{"module with a network", Need{Language: "wasm", Reach: true}, "", "", "no way to other hosts", sallyport.Invalid},

		{"what stands first", Need{Language: "python", Tiers: []string{microvm, gvisor}}, "", microvm, "stands first", ""},
		{"weaker ones are passed over", Need{Trust: "untrusted", Language: "python", Tiers: []string{gvisor, microvm}}, "", microvm, "untrusted", ""},
		{"only weaker ones", Need{Trust: "untrusted", Language: "python", Tiers: []string{gvisor}}, "", "", "gvisor is weaker", sallyport.Invalid},
		{"fixed", Need{Language: "python", Fixed: microvm}, "", microvm, "the manifest says", ""},
		{"fixed below", Need{Language: "javascript", Fixed: isolate}, "", "", "weaker than gvisor", sallyport.Invalid},
		{"auto is no tier", Need{Language: "python", Fixed: Auto, Asked: Auto}, "", gvisor, "", ""},

		{"asked", Need{Language: "javascript", Tiers: []string{gvisor, isolate, microvm}, Asked: isolate}, "", isolate, "the caller asked", ""},
		{"asked and not listed", Need{Language: "python", Tiers: []string{gvisor}, Asked: microvm}, "", "", "none that the tool allows", sallyport.Invalid},
		{"asked below what trust demands", Need{Trust: "untrusted", Language: "python", Tiers: []string{gvisor, microvm}, Asked: gvisor}, "", "", "weaker than microvm", sallyport.Invalid},
		{"asked with files", Need{Language: "javascript", Tiers: []string{gvisor, isolate}, Asked: isolate, Image: true}, "", "", "has no images", sallyport.Invalid},
		{"asked with a session", Need{Language: "python", Tiers: []string{gvisor, microvm}, Asked: microvm, Session: true}, "", microvm, "the caller asked", ""},
		{"asked of an isolate with a session", Need{Language: "javascript", Tiers: []string{gvisor, isolate}, Asked: isolate, Session: true}, "", "", "keeps no sessions", sallyport.Invalid},
		{"asked and lacking is not another", Need{Language: "python", Tiers: []string{gvisor, microvm}, Asked: gvisor}, "gvisor", "", "tier gvisor cannot run here: no engine for it", sallyport.Unavailable},

		{"up", Need{Language: "python", Tiers: []string{gvisor, microvm}}, "gvisor", microvm, "gvisor cannot run here (no engine for it), and the tool allows microvm", ""},
		{"up to the nearest", Need{Trust: "light", Language: "javascript", Tiers: []string{isolate, microvm, gvisor}}, "isolate", gvisor, "stronger", ""},
		{"up twice", Need{Trust: "light", Language: "javascript", Tiers: []string{isolate, gvisor, microvm}}, "isolate gvisor", microvm, "stronger", ""},
		{"up from what is fixed", Need{Trust: "light", Language: "javascript", Fixed: isolate, Tiers: []string{isolate, gvisor}}, "isolate", gvisor, "stronger", ""},
		{"up is not allowed", Need{Trust: "light", Language: "javascript"}, "isolate", "", "tier isolate cannot run here", sallyport.Unavailable},
		{"up cannot", Need{Language: "python", Calls: true, Tiers: []string{gvisor, microvm}}, "gvisor", "", "tier gvisor cannot run here", sallyport.Unavailable},
		{"up with a session", Need{Language: "python", Session: true, Tiers: []string{gvisor, microvm}}, "gvisor", microvm, "stronger", ""},
		{"never down", Need{Trust: "untrusted", Language: "python", Tiers: []string{gvisor, microvm}}, "microvm", "", "tier microvm cannot run here", sallyport.Unavailable},
		{"never down from what stands first", Need{Language: "python", Tiers: []string{microvm, gvisor}}, "microvm", "", "tier microvm cannot run here", sallyport.Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := For(c.need, without(strings.Fields(c.lacks)...))
			if c.code == "" {
				if err != nil || got.Tier != c.tier || !strings.Contains(got.Reason, c.reason) {
					t.Fatalf("%+v, %v", got, err)
				}
				return
			}
			e, ok := errors.AsType[*sallyport.Error](err)
			if !ok || e.Code != c.code || e.Hint == "" || !strings.Contains(e.Message, c.reason) {
				t.Fatalf("%+v, %+v", got, err)
			}
		})
	}
}

// What is lacking is named, with its reason and what to do about it.
func TestLack(t *testing.T) {
	_, err := For(Need{Trust: "light", Language: "javascript"}, without(isolate))
	e, ok := errors.AsType[*sallyport.Error](err)
	if !ok || e.Message != "tier isolate cannot run here: no engine for it (trust light, and it is JavaScript)" ||
		e.Hint != "install one; or add gvisor, which is stronger, to the tool's tiers: it is never run in a weaker one" || !errors.Is(err, sallyport.ErrNotExecuted) {
		t.Fatalf("%+v", err)
	}
}

// demand is the weakest tier of each trust, written down a second time.
var demand = map[string]int{"untrusted": 3, "agent": 2, "": 2, "light": 1}

// No choice is weaker than what trust demands, whatever else there is; it is one
// that the tool allows and the host can run; and no lack leads down.
func TestNeverWeaker(t *testing.T) {
	count := 0
	for n := range needs() {
		best, bestErr := For(n, nil)
		for lacks := range 16 {
			lack := without(subset(lacks)...)
			got, err := For(n, lack)
			count++
			if err != nil {
				e, ok := errors.AsType[*sallyport.Error](err)
				if !ok || e.Hint == "" || e.Message == "" || (e.Code == sallyport.Invalid) != (bestErr != nil) {
					t.Fatalf("%+v without %v: %+v", n, subset(lacks), err)
				}
				continue
			}
			floor := demand[n.Trust]
			if n.Language == "wasm" && n.Trust == "" {
				floor = 1
			}
			named := n.Asked != "" && n.Asked != Auto
			switch {
			case lack(got.Tier) != nil:
				t.Fatalf("%+v: %s is lacking", n, got.Tier)
			case named && (got.Tier != n.Asked || !slices.Contains(n.Tiers, got.Tier)):
				t.Fatalf("%+v: asked for, and got %s", n, got.Tier)
			case strength[got.Tier] < floor && (!named || n.Trust == "untrusted"):
				t.Fatalf("%+v: %s is weaker than trust demands", n, got.Tier)
			case len(n.Tiers) > 0 && !slices.Contains(n.Tiers, got.Tier) && got.Tier != n.Fixed:
				t.Fatalf("%+v: %s is not allowed", n, got.Tier)
			case bestErr != nil || strength[got.Tier] < strength[best.Tier]:
				t.Fatalf("%+v without %v: down from %s to %s", n, subset(lacks), best.Tier, got.Tier)
			case n.GPU && got.Tier != gvisor, n.Session && got.Tier != gvisor && got.Tier != microvm, n.Calls && got.Tier != gvisor, n.Timeout > 30*time.Second && got.Tier == isolate,
				n.Image && (got.Tier == isolate || got.Tier == wasm):
				t.Fatalf("%+v: %s cannot do that", n, got.Tier)
			case got.Reason == "":
				t.Fatalf("%+v: no reason", n)
			}
		}
	}
	if count < 100_000 {
		t.Errorf("only %d combinations", count)
	}
}

func subset(bits int) (out []string) {
	for i, t := range sallyport.Tiers() {
		if bits&(1<<i) != 0 {
			out = append(out, t)
		}
	}
	return out
}

// needs are all combinations.
func needs() func(yield func(Need) bool) {
	var lists [][]string
	for i := range 16 {
		s := subset(i)
		lists = append(lists, s)
		if r := slices.Clone(s); len(r) > 1 {
			slices.Reverse(r)
			lists = append(lists, r)
		}
	}
	return func(yield func(Need) bool) {
		for _, trust := range []string{"", "untrusted", "agent", "light"} {
			for _, lang := range []string{"python", "javascript", "shell", "wasm", "session"} {
				for _, tiers := range lists {
					for _, fixed := range append(sallyport.Tiers(), "") {
						for _, asked := range append(sallyport.Tiers(), Auto) {
							for special := range 9 {
								n := Need{Trust: trust, Language: lang, Tiers: tiers, Fixed: fixed, Asked: asked}
								switch special {
								case 1:
									n.GPU = true
								case 2:
									n.Session = true
								case 3:
									n.Timeout = time.Hour
								case 4:
									n.Files = true
								case 5:
									n.Image = true
								case 6:
									n.Calls = true
								case 7:
									n.Reach, n.Env = true, true
								case 8:
									n.GPU, n.Session, n.Timeout = true, true, time.Hour
								}
								if !yield(n) {
									return
								}
							}
						}
					}
				}
			}
		}
	}
}

func TestNeedOf(t *testing.T) {
	own := sallyport.Tool{Code: &sallyport.Script{Language: "javascript"}, Manifest: sallyport.Manifest{Trust: "agent", Tiers: []string{gvisor, isolate}, Egress: []string{"a.test:443"}}}
	n := NeedOf(own, json.RawMessage(`{"code":"1","tier":"isolate","session":"s","files":{"a":"b"},"tools":["x"],"image":"i","timeout_seconds":2,"network":"none"}`))
	want := Need{Trust: "agent", Language: "javascript", Tiers: own.Manifest.Tiers, Asked: isolate, Timeout: 2 * time.Second, Session: true, Files: true, Image: true, Calls: true}
	if fmt.Sprintf("%+v", n) != fmt.Sprintf("%+v", want) {
		t.Errorf("%+v\n%+v", n, want)
	}
	// The arguments of a tool with code of its own are that code's alone.
	script := own
	script.Code = &sallyport.Script{Language: "javascript", Source: "1"}
	if n := NeedOf(script, json.RawMessage(`{"tier":"isolate","session":"s"}`)); n.Asked != "" || n.Session || !n.Reach {
		t.Errorf("%+v", n)
	}
	if c, err := Of(sallyport.Tool{}, nil, nil); c.Tier != "" || err != nil {
		t.Errorf("%+v, %v", c, err)
	}
}

// Who asks for long work gets a tier that takes it. What an operator lets every run
// take asks for nothing: a light tool stays light, and is bounded there.
func TestLongWork(t *testing.T) {
	own := sallyport.Tool{Code: &sallyport.Script{Language: "javascript"}, Manifest: sallyport.Manifest{Trust: "light"}}
	long := own
	long.Manifest.Limits.Timeout = 2 * time.Minute
	for _, c := range []struct {
		name string
		tool sallyport.Tool
		args string
		want string
	}{
		{"nobody asked", own, `{}`, isolate},
		{"the tool's manifest", long, `{}`, gvisor},
		{"the manifest, and a call that takes less", long, `{"timeout_seconds":20}`, isolate},
		{"the call", own, `{"timeout_seconds":60}`, gvisor},
		{"the call, beyond all bounds", own, `{"timeout_seconds":1e300}`, gvisor},
	} {
		if got, err := Of(c.tool, json.RawMessage(c.args), nil); err != nil || got.Tier != c.want {
			t.Errorf("%s: %+v, %v; want %s", c.name, got, err, c.want)
		}
	}
	operator := sallyport.Limits{Timeout: 5 * time.Minute, Memory: 1 << 30}
	for tier, want := range map[string]time.Duration{isolate: 30 * time.Second, wasm: operator.Timeout, gvisor: operator.Timeout, microvm: operator.Timeout, "": operator.Timeout} {
		if l := Limits(own, operator, tier); l.Timeout != want || l.Memory != operator.Memory || l.Processes != sallyport.DefaultLimits().Processes {
			t.Errorf("%s: %+v", tier, l)
		}
	}
	if l := Limits(long, operator, gvisor); l.Timeout != 2*time.Minute {
		t.Errorf("the tool's own: %+v", l)
	}
}

// Only a caller whose code runs takes the network away by an argument: that of any
// other tool may be called so, and means what its author says.
func TestReach(t *testing.T) {
	tool := sallyport.Tool{Code: &sallyport.Script{Language: "python"}, Manifest: sallyport.Manifest{Egress: []string{"a.test:443"}}}
	ownCode, ofServer := tool, tool
	ownCode.Code, ofServer.Code = &sallyport.Script{Language: "python", Source: "1"}, nil
	for _, c := range []struct {
		name string
		tool sallyport.Tool
		args string
		want int
	}{
		{"taken away", tool, `{"network":"none"}`, 0},
		{"another word", tool, `{"network":"all"}`, 1},
		{"nothing said", tool, `{}`, 1},
		{"an argument of the tool's own", ownCode, `{"network":"none"}`, 1},
		{"of a server's tool", ofServer, `{"network":"none"}`, 1},
	} {
		if got := Reach(c.tool, json.RawMessage(c.args)); len(got) != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}
