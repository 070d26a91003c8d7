package share

import (
	"fmt"
	"testing"
)

func TestShares(t *testing.T) {
	p := New(100)
	fill := func(tenant, principal string) (n int) {
		for p.Take(tenant, principal, 1) {
			n++
		}
		return n
	}
	// A principal that is alone leaves a third for its tenant's others, and a third for
	// the other tenants.
	if n := fill("a", "1"); n != 33 {
		t.Errorf("the first principal has %d", n)
	}
	for i := range 60 {
		fill("a", fmt.Sprint("more", i))
	}
	if p.Used() != 50 {
		t.Errorf("the first tenant has %d", p.Used())
	}
	for i := range 60 {
		fill("b", fmt.Sprint(i))
	}
	if p.Used() != 75 {
		t.Errorf("the second tenant has %d", p.Used()-50)
	}
	last := p.Used()
	for i := range 100 { // tenants that have nothing get something while there is any
		if got := fill(fmt.Sprint("t", i), "1") > 0; got != (last < 100) {
			t.Fatalf("of %d, tenant %d gets some: %t", last, i, got)
		}
		last = p.Used()
	}
	if last != 100 {
		t.Errorf("%d of 100", last)
	}
	p.Give("a", "1", 33)
	if !p.Take("new", "1", 33) || p.Take("new", "2", 1) {
		t.Error("what is given back is not there, or more than that is")
	}
}

func TestWhatIsGivenBackIsForgotten(t *testing.T) {
	p := New(10)
	if p.Take("a", "1", 11) || !p.Take("a", "1", 10) || p.Take("b", "1", 1) {
		t.Error("the bound")
	}
	p.Give("a", "1", 10)
	if p.Used() != 0 || len(p.tenants)+len(p.principals) != 0 {
		t.Errorf("%+v", p)
	}
}
