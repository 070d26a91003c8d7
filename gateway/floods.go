package gateway

import "sallyport.dev/sallyport"

// A flood is the payload of the entry that raises the alarm.
type flood struct {
	Principal string `json:"principal"`
	Target    string `json:"target"`
	Flood     string `json:"flood"`
}

// flooded raises the alarm: in the log and on record.
func (g *Gateway) flooded(rec *record, cause error) {
	if !g.floods.Speak(rec.Tenant+"/"+rec.Principal, g.Now()) {
		return
	}
	g.Log.Warn("too many calls wait for a human", "tenant", rec.Tenant, "principal", rec.Principal, "call", rec.CallID, "cause", cause)
	if err := g.Journal.Append(rec.entry(sallyport.EntryTicket, flood{rec.Principal, rec.Target, cause.Error()})); err != nil {
		g.Log.Error("cannot record a flood", "call", rec.CallID, "err", err)
	}
}
