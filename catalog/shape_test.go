package catalog

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/catalog/profile"
)

// A name that a profile gives can be no other tool's of the gateway or a manifest;
// nothing changes then.
func TestProfileCollisionsAreRefused(t *testing.T) {
	ours := []sallyport.Tool{{Name: "run_x", Origin: sallyport.Origin{Backend: "sandbox"}}}
	taken := map[string]profile.Profile{"desk": {Names: []string{"*"}, Rename: map[string]string{"run_x": "s__a"}, Place: func(key string) string { return "f.yaml:7 " + key }}}
	c := open(t, Options{Builtins: ours, Profiles: map[string]profile.Profile{"desk": {Names: []string{"*"}, Rename: map[string]string{"x": "s__a"}}}})
	set(t, c, "s", tool("a"), tool("x"), tool("desk"))
	before := c.Generation()
	if err := c.Set(taken, nil); err == nil || !strings.Contains(err.Error(), `f.yaml:7 rename.run_x: profile desk: the name "run_x" is already used by the gateway itself`) || c.Generation() != before {
		t.Errorf("a builtin's name: %v", err)
	}
	named := []Manifest{{File: "m.yaml", Name: "x", Server: "s", Tool: "desk"}}
	if err := c.Set(c.profiles, named); err == nil || !strings.Contains(err.Error(), "m.yaml") || c.Generation() != before {
		t.Errorf("a manifest's name: %v", err)
	}
	// A server's own name for a tool is never in the way.
	if x, err := c.Resolve("desk", "x"); err != nil || x.Name != "s__a" {
		t.Errorf("%+v, %v", x, err)
	}
	if _, err := New(Options{Builtins: ours, Profiles: taken}); err == nil {
		t.Error("taken at the start")
	}
	// What has no effect is told, once the server has told what it has.
	if err := c.Set(map[string]profile.Profile{"desk": {Names: []string{"*"}, Fix: map[string]json.RawMessage{"s__typo": json.RawMessage(`{"a":1}`), "late__a": nil}}}, nil); err != nil {
		t.Fatal(err)
	}
	said := 0
	for _, w := range c.Warnings() {
		if strings.Contains(w.Reason, "profile desk: fix has no effect") && w.Tool == "s__typo" {
			said++
		}
	}
	if said != 1 || len(c.Warnings()) != 1 {
		t.Errorf("%+v", c.Warnings())
	}
}

// What decides about a tool is the same in every shape.
func TestShapesChangeOnlyWhatIsShown(t *testing.T) {
	p := profile.Profile{Names: []string{"*"}, Rename: map[string]string{"b": "s__a"}, Describe: map[string]string{"s__a": "other"}, Fix: map[string]json.RawMessage{"s__a": json.RawMessage(`{"x":1}`)}}
	c := open(t, Options{Profiles: map[string]profile.Profile{"p": p}})
	set(t, c, "s", json.RawMessage(`{"name":"a","description":"d","inputSchema":{"type":"object","properties":{"x":{"type":"integer"},"y":{}},"required":["x"]}}`))
	plain, _ := c.Resolve("", "s__a")
	shaped, _ := c.Resolve("p", "b")
	if string(shaped.Definition) != `{"name":"b","description":"other","inputSchema":{"type":"object","properties":{"y":{}}}}` {
		t.Errorf("shown as %s", shaped.Definition)
	}
	shaped.Definition, shaped.Alias, shaped.Fixed = plain.Definition, "", nil
	a, _ := json.Marshal(plain)
	if b, _ := json.Marshal(shaped); string(a) != string(b) {
		t.Errorf("%s\n%s", a, b)
	}
	if err := c.Validate(shaped, json.RawMessage(`{"y":1}`)); err == nil {
		t.Error("the schema that counts is the one without the fixed argument")
	}
}

// TO-02, TO-03: a name that passes for another in print waits for a human, from
// another server and from the same; names that differ in more, or in case alone, do not.
func TestTO03NamesThatPassForOthersWait(t *testing.T) {
	for name, waits := range map[string]bool{
		"send_maiI": true, "send_mai1": true, "5end_mail": false, "sencl_mail": false, "send-mail": false, "SEND_MAIL": false, "send_mails": false, "send_mail": false, "rnodem": true, "vvindow": true, "get_id": false, "l0gin": true,
	} {
		for _, server := range []string{"x", "y"} {
			c := open(t, Options{})
			first := []json.RawMessage{tool("send_mail"), tool("modem"), tool("window"), tool("login")}
			if server == "y" {
				if name == "send_mail" { // twice at one server is a fault of its own
					continue
				}
				set(t, c, "y", append(first, tool(name))...)
			} else {
				set(t, c, "y", first...)
				set(t, c, "x", tool(name))
			}
			got, err := c.Resolve("", ExposedName(server, name))
			if err != nil || (got.Status == sallyport.ToolQuarantined) != waits || waits && !strings.Contains(got.StatusReason, "passes for") {
				t.Errorf("%s of %s: %s %s, %v", name, server, got.Status, got.StatusReason, err)
			}
			if waits {
				if err := c.Approve(t.Context(), got.Name, ""); err != nil {
					t.Fatal(err)
				}
				set(t, c, "z", tool("other"))
				if got, _ := c.Resolve("", got.Name); got.Status != sallyport.ToolActive || len(c.Remarks()[got.Name]) > 0 {
					t.Errorf("approved: %s, %v", got.Status, c.Remarks()[got.Name])
				}
			}
		}
	}
}

// slow are pins in a database that does not answer.
type slow struct {
	memory
	asked, answer chan struct{}
}

func (s *slow) GetPin(ctx context.Context, server, tool string) (Pin, error) {
	if s.asked != nil {
		s.asked <- struct{}{}
		<-s.answer
	}
	return s.memory.GetPin(ctx, server, tool)
}

// While the pins are read again, what there is can be listed, called and changed.
func TestRecheckKeepsNobodyWaiting(t *testing.T) {
	s := &slow{}
	c := open(t, Options{Pins: s})
	set(t, c, "s", described("a", "one"))
	set(t, c, "s", described("a", "two"))
	s.asked, s.answer = make(chan struct{}), make(chan struct{})
	done := make(chan error)
	go func() { done <- c.Recheck(context.Background()) }()
	<-s.asked
	went := make(chan error)
	go func() {
		_ = c.Listed("s")
		went <- c.Set(nil, nil)
	}()
	select {
	case err := <-went:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for the database")
	}
	close(s.answer)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Nobody is asked to approve a request that is never made: what its path would
// refuse is refused before.
func TestRequestsThatAreNeverMadeAreInvalid(t *testing.T) {
	c := operations(t, `{"openapi":"3.0.3","info":{"title":"t","version":"1"},"paths":{"/pets/{id}":{"delete":{"operationId":"drop","parameters":[{"name":"id","in":"path","required":true,"schema":{"type":"string"}}],"responses":{"200":{"description":"ok"}}}}}}`)
	drop, err := c.Resolve("", "s__drop")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"..", ".", "a/../b", "%2e%2e", "a\\..\\b", ""} {
		args, _ := json.Marshal(map[string]string{"id": id})
		if err := c.Validate(drop, args); sallyport.CodeOf(err) != sallyport.Invalid {
			t.Errorf("%q: %v", id, err)
		}
	}
	if err := c.Validate(drop, json.RawMessage(`{"id":"rex"}`)); err != nil {
		t.Errorf("the control: %v", err)
	}
}
