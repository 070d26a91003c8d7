package gateway

import (
	"sync"
	"time"

	"sallyport.dev/sallyport"
)

// floods notes which principals ask humans for too much, so that each is
// reported once a minute.
type floods struct {
	mu   sync.Mutex
	told map[string]time.Time // guarded by mu; by tenant and principal
}

const (
	floodPause = time.Minute
	maxFloods  = 10_000
)

func (f *floods) speak(who string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if since := now.Sub(f.told[who]); since >= 0 && since < floodPause {
		return false
	}
	if f.told == nil || len(f.told) >= maxFloods {
		f.told = map[string]time.Time{}
	}
	f.told[who] = now
	return true
}

// A flood is the payload of the entry that raises the alarm.
type flood struct {
	Principal string `json:"principal"`
	Target    string `json:"target"`
	Flood     string `json:"flood"`
}

// flooded raises the alarm: in the log and on record.
func (g *Gateway) flooded(rec *record, cause error) {
	if !g.floods.speak(rec.Tenant+"/"+rec.Principal, g.Now()) {
		return
	}
	g.Log.Warn("too many calls wait for a human", "tenant", rec.Tenant, "principal", rec.Principal, "call", rec.CallID, "cause", cause)
	if err := g.Journal.Append(rec.entry(sallyport.EntryTicket, flood{rec.Principal, rec.Target, cause.Error()})); err != nil {
		g.Log.Error("cannot record a flood", "call", rec.CallID, "err", err)
	}
}
