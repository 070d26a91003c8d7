package sallyport_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

func yes(by string, groups ...string) sallyport.Vote {
	return sallyport.Vote{By: by, Groups: groups, Approve: true}
}

func TestUnmet(t *testing.T) {
	fin := sallyport.Demand{Policy: "f", Groups: []string{"finance"}}
	fin2 := sallyport.Demand{Policy: "f2", Groups: []string{"finance"}, Quorum: 2}
	sec := sallyport.Demand{Policy: "s", Groups: []string{"security"}}
	either2 := sallyport.Demand{Policy: "e", Groups: []string{"finance", "security"}, Quorum: 2}
	anyone, any2 := sallyport.Demand{Policy: "a"}, sallyport.Demand{Policy: "a2", Quorum: 2}
	all := []sallyport.Demand{}
	for _, tt := range []struct {
		name    string
		demands []sallyport.Demand
		votes   []sallyport.Vote
		unmet   string // policies
	}{
		{"nobody", nil, nil, "built-in"},
		{"no demand, any admin", nil, []sallyport.Vote{yes("a")}, ""},
		{"empty list is no demand", all, []sallyport.Vote{yes("a")}, ""},
		{"a rejection is no approval", nil, []sallyport.Vote{{By: "a"}}, "built-in"},
		{"one of two", []sallyport.Demand{fin2}, []sallyport.Vote{yes("a", "finance")}, "f2"},
		{"one, twice", []sallyport.Demand{fin2}, []sallyport.Vote{yes("a", "finance"), yes("a", "finance")}, "f2"},
		{"two", []sallyport.Demand{fin2}, []sallyport.Vote{yes("a", "finance"), yes("b", "finance")}, ""},
		{"two, one of them of no group", []sallyport.Demand{fin2}, []sallyport.Vote{yes("a", "finance"), yes("b")}, "f2"},
		{"one for two demands", []sallyport.Demand{fin, sec}, []sallyport.Vote{yes("a", "finance", "security")}, "s"},
		{"two for two demands", []sallyport.Demand{fin, sec}, []sallyport.Vote{yes("a", "finance", "security"), yes("b", "finance")}, ""},
		{"the same, the other way round", []sallyport.Demand{sec, fin}, []sallyport.Vote{yes("b", "finance"), yes("a", "finance", "security")}, ""},
		{"both are needed elsewhere", []sallyport.Demand{fin2, sec}, []sallyport.Vote{yes("a", "finance", "security"), yes("b", "finance", "security")}, "s"},
		{"the same groups are asked once", []sallyport.Demand{fin, fin2, fin}, []sallyport.Vote{yes("a", "finance"), yes("b", "finance")}, ""},
		{"either", []sallyport.Demand{either2}, []sallyport.Vote{yes("a", "finance"), yes("b", "security")}, ""},
		{"any admin is met by who else approved", []sallyport.Demand{anyone, fin}, []sallyport.Vote{yes("a", "finance")}, ""},
		{"any two", []sallyport.Demand{any2, fin}, []sallyport.Vote{yes("a", "finance")}, "a2"},
		{"any two, met", []sallyport.Demand{any2, fin}, []sallyport.Vote{yes("a", "finance"), yes("b")}, ""},
		{"a group of another name", []sallyport.Demand{fin}, []sallyport.Vote{yes("a", "Finance", "finance2")}, "f"},
	} {
		var got []string
		for _, d := range sallyport.Unmet(tt.demands, tt.votes) {
			got = append(got, d.Policy)
		}
		if strings.Join(got, " ") != tt.unmet {
			t.Errorf("%s: unmet %v, want %q", tt.name, got, tt.unmet)
		}
	}
	full := sallyport.Demand{Policy: "p", Groups: []string{"g"}, Quorum: sallyport.MaxQuorum}
	var votes []sallyport.Vote
	for i := range sallyport.MaxQuorum {
		if len(sallyport.Unmet([]sallyport.Demand{full}, votes)) == 0 {
			t.Fatalf("met by %d", i)
		}
		votes = append(votes, yes(fmt.Sprint(i), "g"))
	}
	if u := sallyport.Unmet([]sallyport.Demand{full}, votes); u != nil {
		t.Errorf("20 of 20: %v", u)
	}
}

// Every field of a binding is in its hash, and told as a difference.
func TestBindingFields(t *testing.T) {
	base := sallyport.Binding{Args: []byte(`{}`)}
	typ := reflect.TypeFor[sallyport.Binding]()
	for i := range typ.NumField() {
		b := base
		switch f := reflect.ValueOf(&b).Elem().Field(i); v := f.Addr().Interface().(type) {
		case *string:
			*v = "x"
		case *[]string:
			*v = []string{"x"}
		case *[]sallyport.Observation:
			*v = []sallyport.Observation{{Name: "n"}}
		default:
			f.SetBytes([]byte(`{"a":1}`))
		}
		if b.Hash() == base.Hash() {
			t.Errorf("%s is not in the hash", typ.Field(i).Name)
		}
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if d := b.Differs(base); len(d) != 1 || !strings.HasPrefix(d[0], name) {
			t.Errorf("%s: Differs = %q", typ.Field(i).Name, d)
		}
	}
	if d := base.Differs(sallyport.Binding{Args: []byte(`{}`), Egress: []string{}}); d != nil {
		t.Errorf("none and empty differ: %q", d)
	}
}

func TestAt(t *testing.T) {
	doc := []byte(`{"a/b":{"~":[1.0,{"x":1e400}]},"":"e","n":null}`)
	for p, want := range map[string]string{
		"": string(doc), "/a~1b/~0/0": "1.0", "/a~1b/~0/1/x": "1e400", "/": `"e"`, "/n": "null",
		"/x": "", "x": "", "/a~1b/~0/2": "", "/a~1b/~0/01": "", "/a~1b/~0/-": "", "/n/x": "", "/A~1b": "",
	} {
		if v, ok := sallyport.At(doc, p); string(v) != want || ok != (want != "") {
			t.Errorf("At(%q) = %s, %v; want %s", p, v, ok, want)
		}
	}
}

// What was asked covers what is demanded now only where it was no less.
func TestCovered(t *testing.T) {
	of := func(policy string, quorum int, groups ...string) sallyport.Demand {
		return sallyport.Demand{Policy: policy, Groups: groups, Quorum: quorum}
	}
	type list = []sallyport.Demand
	for _, tt := range []struct {
		name       string
		asked, now list
		covered    bool
	}{
		{"the same", list{of("p", 2, "a")}, list{of("p", 2, "a")}, true},
		{"nothing now", list{of("p", 2, "a")}, nil, true},
		{"nothing then", nil, list{of("p", 0)}, false},
		{"nothing then, nothing now", nil, nil, true},
		{"no quorum is one", list{of("p", 1)}, list{of("p", 0)}, true},
		{"quorum lowered", list{of("p", 2, "a")}, list{of("p", 1, "a")}, true},
		{"quorum raised", list{of("p", 1, "a")}, list{of("p", 2, "a")}, false},
		{"groups in another order", list{of("p", 1, "a", "b")}, list{of("p", 1, "b", "a")}, true},
		{"one more may speak", list{of("p", 1, "a")}, list{of("p", 1, "a", "b")}, true},
		{"anybody may", list{of("p", 1, "a")}, list{of("p", 1)}, true},
		{"one fewer may speak", list{of("p", 1, "a", "b")}, list{of("p", 1, "a")}, false},
		{"another may speak", list{of("p", 1, "a")}, list{of("p", 1, "b")}, false},
		{"a group where anybody did", list{of("p", 1)}, list{of("p", 1, "a")}, false},
		{"policy added", list{of("p", 1)}, list{of("p", 1), of("q", 1)}, false},
		{"policy removed", list{of("p", 1), of("q", 1)}, list{of("q", 1)}, true},
		{"quorums of two policies do not add up", list{of("p", 1, "a"), of("q", 1, "a")}, list{of("p", 2, "a")}, false},
		{"the gateway's own, under a policy's", list{of("p", 1, "a")}, list{of(sallyport.DemandCritical, 0)}, true},
		{"the gateway's own, under nothing", nil, list{of(sallyport.DemandCritical, 0)}, false},
		{"a policy's, under the gateway's own", list{of(sallyport.DemandCritical, 0)}, list{of("p", 1)}, false},
	} {
		if got := sallyport.Covered(tt.asked, tt.now); got != tt.covered {
			t.Errorf("%s: covered %v, want %v", tt.name, got, tt.covered)
		}
	}
}
