package gateway

import "sallyport.dev/sallyport"

// sanitise makes an output fit to be seen. It is the only maker of results.
func (g *Gateway) sanitise(rec *record, out output) (sallyport.Result, error) {
	rec.at(sallyport.Sanitise)
	clean, isError, findings, err := g.Sanitiser.Result(out.tool, out.Output)
	rec.Findings = findings
	if err != nil {
		return sallyport.Result{}, at(sallyport.Sanitise, err)
	}
	return sallyport.Result{CallID: rec.CallID, Content: clean, IsError: isError, Replay: rec.Replay, At: out.at}, nil
}
