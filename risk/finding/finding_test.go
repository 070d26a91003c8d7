package finding_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// What one judge found stays when another verdict takes it in: once each, in
// order, bounded; but the same amount twice is twice the money.
func TestEffectsPartsAmountsAreCarried(t *testing.T) {
	var inner finding.List
	inner.Lost("moves money")
	inner.Effect(sallyport.EffectMoney)
	inner.Effect(sallyport.EffectMoney)
	inner.Part("/a", "amount", "10.00 EUR")
	inner.Part("/a", "amount", "10.00 EUR")
	inner.Part("/b", "recipient", "")
	inner.Amount(sallyport.Amount{Value: "10.00", Currency: "EUR"})
	inner.Amount(sallyport.Amount{Value: "10.00", Currency: "EUR"})
	for name, take := range map[string]func(*finding.List){
		"Merge":  func(l *finding.List) { l.Merge(inner.Risk()) },
		"Append": func(l *finding.List) { l.Append(&inner) },
	} {
		var l finding.List
		l.Effect(sallyport.EffectRead)
		take(&l)
		r := l.Risk()
		if got := strings.Join(r.Effects, " "); got != "money read" {
			t.Errorf("%s: effects %q, want them sorted and once", name, got)
		}
		if len(r.Parts) != 1 || r.Parts[0] != (sallyport.Part{Path: "/a", Label: "amount", Text: "10.00 EUR"}) {
			t.Errorf("%s: parts %v, want one", name, r.Parts)
		}
		if len(r.Amounts) != 2 {
			t.Errorf("%s: amounts %v, want both", name, r.Amounts)
		}
		if !r.Irreversible {
			t.Errorf("%s: %v lost the level", name, r)
		}
	}
}

func TestBounds(t *testing.T) {
	var l finding.List
	for i := range 400 {
		l.Part("", "recipient", strings.Repeat("é", i+1))
		l.Effect(strings.Repeat("x", i+1))
		l.Amount(sallyport.Amount{Value: "1"})
	}
	r := l.Risk()
	if len(r.Parts) != 33 || r.Parts[32].Label != sallyport.PartsLeftOut || len(r.Effects) > 16 || len(r.Amounts) > 256 {
		t.Errorf("%d parts, %d effects, %d amounts", len(r.Parts), len(r.Effects), len(r.Amounts))
	}
	if r.Level != sallyport.Critical {
		t.Errorf("amounts that were dropped leave it %s", r.Level)
	}
	var long finding.List
	long.Part("/p", "sql", strings.Repeat("é", 40_000)+"; DROP TABLE x")
	if p := long.Risk().Parts[0]; len(p.Text) > 4200 || !utf8.ValidString(p.Text) || !strings.HasSuffix(p.Text, "; DROP TABLE x") || !strings.Contains(p.Text, " bytes more …") {
		t.Errorf("a long part is %d bytes, %q", len(p.Text), p.Text[len(p.Text)-8:])
	}
	total := 0
	for _, p := range r.Parts {
		total += len(p.Text)
	}
	if total > 64<<10 {
		t.Errorf("the parts have %d bytes in all", total)
	}
	var merged finding.List
	merged.Merge(r)
	if parts := merged.Risk().Parts; parts[len(parts)-1].Label != sallyport.PartsLeftOut {
		t.Error("a verdict that is merged forgets that parts were left out")
	}
}
