package gateway

import (
	"bytes"
	"context"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/trust"
)

// strangers marks what a script read of theirs. No text of a program can hold it:
// in JSON its quotes are escaped.
var strangers = []byte(`"` + sallyport.MetaUntrusted + `":`)

// sanitise makes an output fit to be seen. It is the only maker of results.
func (g *Gateway) sanitise(ctx context.Context, rec *record, out output) (sallyport.Result, error) {
	rec.at(sallyport.Sanitise)
	if out.tool.Code != nil && bytes.Contains(out.Content, strangers) { // a script that read what they wrote
		out.tool.Manifest.Untrusted = true
	}
	clean, isError, findings, err := g.Sanitiser.Result(rec.reader(), out.tool, g.addressed(rec.Profile, out))
	rec.Findings = findings
	if err != nil {
		return sallyport.Result{}, at(sallyport.Sanitise, err)
	}
	if isError && !out.IsError { // malformed, which its backend did not see
		rec.unclear()
	}
	if err := g.taint(ctx, rec, out.tool, findings); err != nil {
		return sallyport.Result{}, err
	}
	res := sallyport.Result{CallID: rec.CallID, Content: clean, IsError: isError, Replay: rec.Replay, At: out.at, Untrusted: trust.Doubt(out.tool, findings) != ""}
	if rec.Replay {
		res.Twin = rec.Twin
	}
	return res, nil
}
