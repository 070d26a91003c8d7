package approval_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval"
)

// No arguments, however odd, break a view: it is bounded, it obeys nobody, and
// it has the hash.
func FuzzView(f *testing.F) {
	f.Add(`{"a":["x@a.test","y@b.test",1.0,null,{"k":[]}]}`, "says \u202e")
	f.Add(`{"sql":"SELECT 1            ;\n\n\n⟦12 × U+0020⟧"}`, "\x1b[2J")
	f.Add(`not JSON`, "")
	f.Fuzz(func(t *testing.T, args, text string) {
		canon, err := sallyport.Canonical(json.RawMessage(args))
		if err != nil {
			canon = json.RawMessage(args)
		}
		tk := sallyport.Ticket{ID: "tkt_1", Binding: sallyport.Binding{Tool: text, Args: canon}, Risk: sallyport.Risk{Reasons: []string{text}},
			About: sallyport.ToolNote{Description: text, Code: text}}
		tk.Hash = tk.Binding.Hash()
		v := approval.NewView(tk, time.Unix(0, 0))
		card, _ := v.Card()
		for _, out := range []string{v.Text(), card, approval.Render(tk, time.Unix(0, 0))} {
			checkTerminal(t, out)
			if !strings.Contains(out, tk.Hash) {
				t.Errorf("no hash in %q", out)
			}
		}
		if len(card) > 6*2800 || len(v.Text()) > 400_000 {
			t.Errorf("a card of %d bytes, a text of %d", len(card), len(v.Text()))
		}
		approval.Groups([]sallyport.Ticket{tk, tk})
	})
}
