package conformance

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/stage"
)

// A world is a gateway before servers of every kind.
type world struct {
	*stage.Gateway
	raw
	ledger *stage.Ledger
	self   string // program of the actors
}

// definition is a tool of an actor; the schema may be malformed on purpose.
func definition(name, schema string) string {
	return `{"name":` + name + `,"description":"d","inputSchema":` + schema + `}`
}

func named(names ...string) string {
	var all []string
	for _, n := range names {
		all = append(all, definition(str(n), `{"type":"object"}`))
	}
	return "ACTOR_TOOLS=[" + strings.Join(all, ",") + "]"
}

const longAlias = "a-server-name-of-24-char"

func newWorld(t *testing.T) *world {
	g, l, self := stage.New(t), stage.NewLedger(t), stage.Self(t)
	a := stage.Actor(self, "a", l.Env(), "X=1", "EMPTY=", "EQ=a=b=c", "LINES=a\nb", "UNI=é𝄞", "OWN=one")
	a.MaxLine = "2MiB"
	long := strings.Repeat("n", 99)
	g.Write("sallyport.yaml", g.Config(roomy+"redact: {max_bytes: 8MiB}\n"+stage.Servers(map[string]stage.Server{
		"a":       a,
		"b":       stage.Actor(self, "b", l.Env(), "Y=2"),
		"alpha":   stage.Actor(self, "alpha", named("search")),
		"beta":    stage.Actor(self, "beta", named("search")),
		"x":       stage.Actor(self, "x", named("y__z", "y_z")),
		"x_y":     stage.Actor(self, "x_y", named("z")),
		longAlias: stage.Actor(self, longAlias, named(long[:34], long[:35], long[:64], long+"a", long+"b", strings.Repeat("m", 128))),
		"odd":     stage.Actor(self, "odd", named("a.b", "a/b", "a b", "a:b", "é", "", "a_b")),
		"bent":    stage.Actor(self, "bent", bent),
		"missing": {Command: "/no/such/program"},
	})))
	g.Manifests("a")
	g.Manifests("b")
	g.Env = []string{"GW_MASTER=CANARY-A"}
	g.Start("a", "b", "alpha", "beta", "x", "x_y", longAlias, "odd", "bent")
	return &world{g, newRaw(t, g), l, self}
}

func TestUpstreams(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"FO01_FO02_FO03_Names", names},
		{"FO08_OneBadServer", oneBadServer},
		{"FO20_ChildThatDoesNotEnd", childThatDoesNotEnd},
		{"FO21_ExitsAfterItsReply", exitsAfterItsReply},
		{"FO22_LongLines", longLines},
		{"FO23_CanceledRequest", canceledRequest},
		{"FO24_MalformedReplies", malformedReplies},
		{"FO25_Environment", environment},
		{"FO32_MalformedTools", malformedTools},
		{"OwnUser", ownUser},
		{"FO02_NamesSurviveARestart", namesSurviveARestart},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.In(t)
			c.test(t, w)
		})
	}
}

// A listed tool, as operators see it.
type listed struct {
	Name     string
	Server   string
	Upstream string `json:"upstream_name"`
	Status   string
	Reason   string
}

func (w *world) tools(t *testing.T) (all []listed) {
	t.Helper()
	var out struct{ Tools []listed }
	if err := json.Unmarshal([]byte(w.Must("", "tools", "list", "--json").Out), &out); err != nil {
		t.Fatal(err)
	}
	return out.Tools
}

func (w *world) of(t *testing.T, servers ...string) (all []listed) {
	t.Helper()
	for _, tool := range w.tools(t) {
		if slices.Contains(servers, tool.Server) {
			all = append(all, tool)
		}
	}
	return all
}

// status is a server as operators see it.
type status struct {
	Name, State, Error, Stderr string
	Tools, Restarts            int
	Warnings                   []string
}

func (w *world) server(t *testing.T, name string) status {
	t.Helper()
	var out struct{ Servers []status }
	if err := json.Unmarshal([]byte(w.Must("", "servers", "list", "--json").Out), &out); err != nil {
		t.Fatal(err)
	}
	for _, s := range out.Servers {
		if s.Name == name {
			return s
		}
	}
	return status{}
}

func (w *world) add(t *testing.T, name string, env ...string) stage.Said {
	t.Helper()
	args := []string{"servers", "add", name, "--isolation", "uid"}
	for _, kv := range append([]string{"STAGE_ROLE=actor", "ACTOR_NAME=" + name, w.ledger.Env()}, env...) {
		args = append(args, "--env", kv)
	}
	return w.Run("", append(args, "--", w.self)...)
}

// The number of tools grows with each good server; a bad one is named.
func oneBadServer(t *testing.T, w *world) {
	if s := w.server(t, "missing"); s.Error == "" || s.State == "ready" {
		t.Errorf("the server that is not there: %+v", s)
	}
	before := len(w.tools(t))
	grow := func(what string, by int) {
		t.Helper()
		if now := len(w.tools(t)); now != before+by {
			t.Errorf("after %s: %d tools, want %d and %d more", what, now, before, by)
		}
	}
	w.add(t, "zeta", named("search", "one"))
	grow("one", 2)
	w.add(t, "eta", named("search"))
	grow("two", 3)
	if r := w.Run("", "servers", "add", "bad", "--", "/no/such/program"); !strings.Contains(r.Out+r.Err, "bad") || !strings.Contains(r.Out+r.Err, "/no/such/program") {
		t.Errorf("adding a bad one: %s", r)
	}
	grow("a bad one", 3)
	if r := w.Run("", "servers", "add", "eta", "--", w.self); r.Code == 0 || !strings.Contains(r.Err, "eta") {
		t.Errorf("adding a name that is taken: %s", r)
	}
	w.add(t, "theta", named("search"))
	grow("three", 4)
	for _, name := range []string{"zeta", "eta", "theta"} {
		if a := w.must(t, name+"__search", `{}`, ""); a.Text != name+"/search" {
			t.Errorf("%s: %s", name, a)
		}
	}
	for _, name := range []string{"zeta", "eta", "bad", "theta"} {
		w.Must("", "servers", "remove", name)
	}
	grow("removing them", 0)
}

// gone reports whether a process has ended.
func gone(pid string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	return err != nil || strings.Contains(string(b), ") Z ")
}

func childThatDoesNotEnd(t *testing.T, w *world) {
	added := w.add(t, "stubborn", "ACTOR_STUBBORN=1")
	child := w.must(t, "stubborn__spawn", `{}`, "").Text
	var who struct{ PID int }
	if a := w.must(t, "stubborn__who", `{}`, ""); json.Unmarshal([]byte(a.Text), &who) != nil {
		t.Fatalf("%s after %s", a, added)
	}
	pid := strconv.Itoa(who.PID)
	if gone(pid) || gone(child) {
		t.Fatalf("processes %s and %s are not there: this shows nothing", pid, child)
	}
	began := time.Now()
	w.Must("", "servers", "remove", "stubborn")
	if took := time.Since(began); took > stage.Patience { // it and its child would stay for an hour
		t.Errorf("removing it took %s", took)
	}
	w.Eventually(stage.Patience, "its processes are gone", func() error {
		if gone(pid) && gone(child) {
			return nil
		}
		return fmt.Errorf("%s gone: %t, its child %s gone: %t", pid, gone(pid), child, gone(child))
	})
}

func exitsAfterItsReply(t *testing.T, w *world) {
	for range 5 {
		if a := w.must(t, "b__exit", `{}`, ""); a.Text != "goodbye" {
			t.Errorf("%s", a)
		}
	}
	a := w.must(t, "b__half", `{}`, keyed("half"))
	for _, want := range []string{"outcome_unknown", "upstream_exited", "exit status 1", "about to fail ␛[31m"} {
		if !strings.Contains(string(a.Result), want) {
			t.Errorf("half a reply: %s lacks %q", a, want)
		}
	}
	if a := w.must(t, "b__half", `{}`, keyed("half")); a.Code != "outcome_unknown" || w.ledger.Count("half") != 1 {
		t.Errorf("again with its key: %s; it came %d times", a, w.ledger.Count("half"))
	}
	var out struct {
		Reservations []struct{ Tool, Key, State string }
	}
	if err := json.Unmarshal([]byte(w.Must("", "reservations", "list", "--state", "unknown", "--json").Out), &out); err != nil || len(out.Reservations) != 1 || out.Reservations[0].Key != "half" {
		t.Errorf("unknown outcomes: %+v, %v", out, err)
	}
	if a := w.must(t, "b__echo", `{}`, ""); a.Text != `{}` {
		t.Errorf("afterwards: %s", a)
	}
}

func canceledRequest(t *testing.T, w *world) {
	before := w.must(t, "b__who", `{}`, "").Text
	hasty := *client
	hasty.Timeout = 50 * time.Millisecond
	if _, _, err := w.raw.postWith(&hasty, callBody("1", "b__wait", `{"n":1000}`, modernMeta), modernHeader("b__wait")); err == nil {
		t.Fatal("the request was not cut off: this shows nothing")
	}
	if after := w.legacy(t).must(t, "b__who", `{}`, "").Text; after != before {
		t.Errorf("before %s, after %s: it is another process", before, after)
	}
}

func environment(t *testing.T, w *world) {
	for server, want := range map[string][]string{
		"a": {"X=1", "EMPTY=", "EQ=a=b=c", "LINES=a\nb", "UNI=é𝄞", "OWN=one", "STAGE_ROLE=actor", "ACTOR_NAME=a", w.ledger.Env()},
		"b": {"Y=2", "STAGE_ROLE=actor", "ACTOR_NAME=b", w.ledger.Env()},
	} {
		var got []string
		if err := json.Unmarshal([]byte(w.must(t, server+"__environ", `{}`, "").Text), &got); err != nil {
			t.Fatal(err)
		}
		for _, kv := range want {
			if !slices.Contains(got, kv) {
				t.Errorf("%s lacks %q", server, kv)
			}
		}
		for _, kv := range got {
			name, _, _ := strings.Cut(kv, "=")
			if !slices.Contains(want, kv) && !slices.Contains([]string{"HOME", "LANG", "PATH", "TMPDIR", "TZ", "USER"}, name) {
				t.Errorf("%s has %q, which nobody gave it", server, kv)
			}
		}
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", w.PID()))
	if err != nil || !strings.Contains(string(b), "CANARY-A") {
		t.Errorf("the gateway itself lacks the canary (%v): this shows nothing", err)
	}
}

// A server runs as a user of its own, which sees nothing of the data folder;
// root does, so there is something to see.
func ownUser(t *testing.T, w *world) {
	uids := map[int]string{0: "root", gatewayUID: "the gateway"}
	paths := 0
	err := filepath.WalkDir(w.Data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSocket != 0 {
			return err
		}
		paths++
		for _, server := range []string{"a", "b"} {
			var who struct {
				UID, PID, Bytes, Entries int
				Error                    string
			}
			if err := json.Unmarshal([]byte(w.must(t, server+"__who", `{"path":`+str(path)+`}`, "").Text), &who); err != nil {
				t.Fatal(err)
			}
			if who.Bytes > 0 || who.Entries > 0 || !strings.Contains(who.Error, "permission denied") {
				t.Errorf("%s reads %s: %+v", server, path, who)
			}
			if other := uids[who.UID]; other != "" && other != server {
				t.Errorf("%s runs as uid %d, which is that of %s", server, who.UID, other)
			}
			uids[who.UID] = server
		}
		return nil
	})
	if err != nil || paths < 15 {
		t.Errorf("the control: root sees %d files and folders (%v)", paths, err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.PID()))
	if err != nil || !regexp.MustCompile(`(?m)^Uid:\s+64550\s+64550\s+64550\s+64550$`).Match(b) {
		t.Errorf("the gateway does not run as uid %d alone: %v", gatewayUID, err)
	}
}
