package browser

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/proc"
	"sallyport.dev/sallyport/test/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }

// A driver is a browser that does what it is told.
type driver struct {
	*testing.T
	in    io.Writer
	out   *bufio.Scanner
	shots string // folder for screenshots, "" for none
}

// A look is what the page shows.
type look struct {
	OK                                                    bool
	Error, URL, Title, Lead, Result, Banner, Hash, Ticket string
	Parts, Inline, Markup                                 string
	Buttons, Elements, Requests, Complaints, Hidden       []string
}

// missing skips the test, or fails it where `make browser` promised all of it.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("SALLYPORT_BROWSER") != "" {
		t.Fatal(what)
	}
	t.Skip(what + ": run `make browser`")
}

func newDriver(t *testing.T) *driver {
	t.Helper()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		missing(t, "Chromium is not installed")
	}
	if _, err := os.Stat("node_modules/playwright-core"); err != nil {
		missing(t, "playwright-core is not installed")
	}
	node, err := filepath.EvalSymlinks("../node_modules/.bin/node") // that of `make npm`, for Debian's is too old
	if err != nil {
		missing(t, "Node.js is not installed (make npm)")
	}
	if node, err = filepath.Abs(node); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node, "drive.mjs")
	cmd.Env = append(os.Environ(), "CHROMIUM="+chromium)
	cmd.Stderr = os.Stderr
	in, out := proc.Start(t, cmd)
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	d := &driver{T: t, in: in, out: bufio.NewScanner(out), shots: os.Getenv("SALLYPORT_SHOTS")}
	d.out.Buffer(nil, 16<<20)
	return d
}

func (d *driver) do(name string, args ...string) look {
	d.Helper()
	m := map[string]any{"do": name}
	for i := 0; i+1 < len(args); i += 2 {
		m[args[i]] = args[i+1]
	}
	line, err := json.Marshal(m)
	if err == nil {
		_, err = fmt.Fprintf(d.in, "%s\n", line)
	}
	if err != nil {
		d.Fatal(err)
	}
	var l look
	if !d.out.Scan() {
		d.Fatalf("the browser ended: %v", d.out.Err())
	}
	if err := json.Unmarshal(d.out.Bytes(), &l); err != nil || !l.OK {
		d.Fatalf("%s %v: %s, %v", name, args, l.Error, err)
	}
	return l
}

func (d *driver) shot(name string) {
	if d.shots != "" {
		d.do("screenshot", "file", filepath.Join(d.shots, name+".png"))
	}
}

// A site is a gateway with a database of which somebody wants to lose a table.
type site struct {
	*stage.Gateway
	t     *testing.T
	token string // of the admin's login
	page  string
}

func newSite(t *testing.T) *site {
	g := stage.New(t)
	g.Write("sallyport.yaml", g.Config(stage.Servers(map[string]stage.Server{
		"db": {Command: stage.Program(t, "sallyport"), Args: []string{"demo", "sql-server", "--ledger", ""}},
	})))
	g.Write("tools/db.yaml", "server: db\ntool: run_sql\ndescription: Runs SQL.\nfields:\n  - {path: /sql, kind: sql, dialect: sqlite}\n")
	g.Start("db")
	s := &site{Gateway: g, t: t, page: strings.Replace(g.URL, "127.0.0.1", "localhost", 1) + "/console/passkeys"}
	var in struct{ Token string }
	s.api("POST", "/login", map[string]string{"name": "admin", "password": g.Password}, &in)
	s.token = in.Token
	return s
}

func (s *site) api(method, path string, in, out any) {
	s.t.Helper()
	b, err := json.Marshal(in)
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+"/api/v1"+path, bytes.NewReader(b))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("%s %s: %s %s", method, path, resp.Status, raw)
	}
	if err := json.Unmarshal(raw, out); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) link(kind, ticket string) string {
	s.t.Helper()
	var l struct{ URL string }
	s.api("POST", "/passkeys/links", map[string]string{"kind": kind, "ticket": ticket, "label": "the blue one"}, &l)
	if l.URL == "" {
		s.t.Fatal("no link")
	}
	return l.URL
}

// hostile is what a ticket may bring: markup, and an order of reading reversed.
var hostile = "SELECT 1;" + far + "DROP TABLE orders; -- </pre><script>window.pwned=1</script><img src=x onerror='window.pwned=1'> \u202etxt.exe"

// far pushes what follows out of sight of whoever does not scroll.
var far = strings.Repeat(" ", 300)

func (s *site) ticket(key string) (id, hash string) {
	s.t.Helper()
	args, err := json.Marshal(map[string]string{"sql": hostile})
	if err != nil {
		s.t.Fatal(err)
	}
	r := s.Run("", "call", "db__run_sql", string(args), "--key", key, "--json")
	var out struct{ Error struct{ Ticket string } }
	if err := json.Unmarshal([]byte(r.Out), &out); err != nil || out.Error.Ticket == "" {
		s.t.Fatalf("no ticket: %s", r)
	}
	var t struct{ Hash string }
	s.api("GET", "/approvals/"+out.Error.Ticket, nil, &t)
	return out.Error.Ticket, t.Hash
}

func (s *site) state(id string) string {
	s.t.Helper()
	var t struct{ State string }
	s.api("GET", "/approvals/"+id, nil, &t)
	return t.State
}

func TestPageInChromium(t *testing.T) {
	d := newDriver(t)
	s := newSite(t)
	d.do("authenticator")

	// Enrol. What came by an address ends at the name.
	enrol := s.link("add", "")
	l := d.do("open", "url", strings.Replace(enrol, "localhost", "127.0.0.1", 1))
	if l.Title != "Enrol a passkey for admin" || l.URL != s.page || !slices.Equal(l.Buttons, []string{"Create passkey"}) {
		t.Fatalf("the link: %+v", l)
	}
	d.shot("1-enrol")
	if l = d.do("click", "text", "Create passkey"); !strings.HasPrefix(l.Result, "Enrolled.") {
		t.Fatalf("enrolling: %+v", l)
	}
	d.shot("2-enrolled")
	if l = d.do("open", "url", enrol); !strings.Contains(l.Result, "used already") {
		t.Errorf("a link that was used: %+v", l)
	}
	d.shot("3-used-link")

	// Sign. The ticket is there whole, as text, and nothing of it is alive.
	id, hash := s.ticket("k1")
	l = d.do("open", "url", s.link("sign", id))
	if l.Title != "Sign an approval" || l.Banner != "CANNOT BE UNDONE · CRITICAL" || l.Hash != hash || !slices.Equal(l.Buttons, []string{"Approve with a passkey"}) {
		t.Errorf("the ticket: %+v", l)
	}
	for _, want := range []string{"</pre><script>window.pwned=1</script><img src=x onerror='window.pwned=1'>", `\u202etxt.exe`, id, hash, "db__run_sql"} {
		if !strings.Contains(l.Ticket, want) {
			t.Errorf("the ticket's text lacks %q:\n%s", want, l.Ticket)
		}
	}
	if strings.Contains(l.Ticket, "\u202e") || slices.Contains(l.Elements, "SCRIPT") || slices.Contains(l.Elements, "IMG") || slices.Contains(l.Elements, "B") {
		t.Errorf("a ticket became markup: %v", l.Elements)
	}
	if len(l.Hidden) > 0 {
		t.Errorf("some of the ticket is out of sight: %v", l.Hidden)
	}
	d.shot("4-sign")
	if l = d.do("inline"); l.Inline == "ran" {
		t.Error("inline code ran on the page")
	}
	if l = d.do("markup"); l.Markup != "TypeError" {
		t.Errorf("markup from text: %s", l.Markup)
	}
	l = d.do("open", "url", s.link("sign", id))
	if l = d.do("click", "text", "Approve with a passkey"); !strings.HasPrefix(l.Result, "Approved and signed.") || s.state(id) != "approved" {
		t.Fatalf("signing: %+v, the ticket is %s", l, s.state(id))
	}
	d.shot("5-signed")
	if r := s.Run("", "audit", "verify"); r.Code != 0 || !strings.Contains(r.Out, "1 approvals are signed by passkeys") {
		t.Errorf("audit verify: %s", r)
	}

	// From a chat message: log in on the page, then reject, which takes no passkey.
	id, _ = s.ticket("k2")
	d.do("open", "url", s.page+"?ticket="+id)
	d.do("fill", "label", "Password", "value", "wrong")
	if l = d.do("click", "text", "Log in"); !strings.Contains(l.Result, "unknown name or wrong password") || l.Ticket != "" {
		t.Errorf("a wrong password: %+v", l)
	}
	d.do("fill", "label", "Password", "value", s.Password)
	if l = d.do("click", "text", "Log in"); l.Title != "Sign an approval" || !slices.Equal(l.Buttons, []string{"Approve with a passkey", "Reject"}) {
		t.Fatalf("after the login: %+v", l)
	}
	d.shot("6-decide")
	d.do("fill", "label", "Reason", "value", "not on a Friday")
	if l = d.do("click", "text", "Reject"); !strings.Contains(l.Result, "rejected") || s.state(id) != "rejected" {
		t.Errorf("rejecting: %+v, the ticket is %s", l, s.state(id))
	}

	heard := d.do("heard")
	for _, r := range heard.Requests {
		if !strings.HasPrefix(r, strings.TrimSuffix(s.page, "/console/passkeys")) && !strings.HasPrefix(r, s.URL+"/console/passkeys") && r != "about:blank" {
			t.Errorf("the page asked for %s", r)
		}
	}
	if len(heard.Requests) < 10 {
		t.Errorf("only %d requests were seen: nobody listens", len(heard.Requests))
	}
	for _, c := range heard.Complaints {
		// The refusals above, and the injections that this test made.
		if !strings.Contains(c, "the server responded with a status of 40") && !strings.Contains(c, "Content Security Policy") && !strings.Contains(c, "TrustedHTML") && !strings.Contains(c, "TrustedScript") {
			t.Errorf("the browser complains: %s", c)
		}
	}
	// The control: without the page's policy, the same injections work.
	d.do("open", "url", s.page) // a page that is loaded
	if l = d.do("elsewhere", "url", strings.TrimSuffix(s.page, "/console/passkeys")+"/healthz"); l.Inline != "ran" || l.Markup != "taken" {
		t.Errorf("the control: %+v", l)
	}
}
