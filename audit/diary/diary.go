// Package diary records what third-party servers do beside their answers: what
// they reached, or tried to, and which limits they ran into. A server does that
// as often as it likes; what is written about it is bounded.
//
// Something new is written soon, repetitions are added up and written seldom, and
// of new targets only so many an hour are named. What is beyond them is counted
// together. So one server costs a bounded number of entries and of rows an hour.
package diary

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
)

const (
	soon       = 10 * time.Second // between entries of one server that tell something new
	late       = 10 * time.Minute // between those that tell repetitions only
	look       = 5 * time.Second  // between looks at what is due
	maxTargets = 64               // that are named within an hour, of one server, limits among them
	maxTarget  = 300              // bytes of one

	others = "others" // stands for those that are not named; as package egress says it
)

// A Diary is safe for concurrent use.
type Diary struct {
	tenant string
	append func(sallyport.Entry) error
	clean  func(string) string
	clock  func() time.Time

	mu    sync.Mutex
	pages map[string]*page // by server

	stop chan struct{}
	done chan struct{}
}

// A page is what is known of one server.
type page struct {
	since   time.Time                        // of what is not written yet
	rows    map[sallyport.Connection]*counts // not written yet
	limits  map[string]int                   // the same
	news    bool                             // of them, something was never written
	written time.Time                        // the last entry

	known map[sallyport.Connection]bool // named in this hour
	hour  time.Time                     // that began then
}

type counts struct {
	count int
	bytes int64
}

// Options of a diary. Clock may be nil.
type Options struct {
	Tenant string
	Append func(sallyport.Entry) error // an error: it is tried again later
	Clean  func(string) string         // masks secrets in what a server made up
	Clock  func() time.Time
}

// New opens a diary. Close writes what is left.
func New(o Options) *Diary {
	d := &Diary{
		tenant: o.Tenant, append: o.Append, clean: o.Clean, clock: o.Clock,
		pages: map[string]*page{}, stop: make(chan struct{}), done: make(chan struct{}),
	}
	if d.clock == nil {
		d.clock = time.Now
	}
	go d.run()
	return d
}

// Note takes what a server did since the last time. It waits for nothing.
func (d *Diary) Note(server string, all []sallyport.Connection, limits []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock()
	p := d.pages[server]
	if p == nil {
		p = &page{rows: map[sallyport.Connection]*counts{}, limits: map[string]int{}}
		d.pages[server] = p
	}
	if p.empty() {
		p.since = now
	}
	if now.Sub(p.hour) >= time.Hour {
		p.hour, p.known = now, map[sallyport.Connection]bool{}
	}
	for _, c := range all {
		p.add(c)
	}
	for _, l := range limits {
		p.limits[l]++
		if key := (sallyport.Connection{Reason: "limit " + l}); !p.known[key] {
			p.known[key], p.news = true, true
		}
	}
}

func (p *page) empty() bool { return len(p.rows)+len(p.limits) == 0 }

func (p *page) add(c sallyport.Connection) {
	n := counts{c.Count, c.Bytes}
	c.Count, c.Bytes, c.Target = 0, 0, strings.ToValidUTF8(c.Target[:min(len(c.Target), maxTarget)], "")
	if !p.known[c] && len(p.known) >= maxTargets {
		c.Target = others
	}
	if !p.known[c] && c.Target != others {
		p.known[c], p.news = true, true
	}
	if p.rows[c] == nil {
		p.rows[c] = &counts{}
	}
	p.rows[c].count += n.count
	p.rows[c].bytes += n.bytes
}

func (d *Diary) run() {
	defer close(d.done)
	t := time.NewTicker(look)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			d.Write(false)
		case <-d.stop:
			d.Write(true)
			return
		}
	}
}

// Write writes what is due, or all that there is.
func (d *Diary) Write(all bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock()
	for server, p := range d.pages {
		wait := late
		if p.news {
			wait = soon
		}
		if p.empty() || !all && now.Sub(p.written) < wait {
			continue
		}
		if err := d.write(server, p, now); err != nil {
			slog.Warn("what a server did is not recorded yet", "server", server, "err", err)
			continue
		}
		p.written, p.news = now, false
		clear(p.rows)
		clear(p.limits)
	}
}

func (d *Diary) write(server string, p *page, now time.Time) error {
	r := sallyport.ServerReport{Server: server, Since: p.since}
	for c, n := range p.rows {
		c.Target, c.Count, c.Bytes = d.clean(c.Target), n.count, n.bytes
		r.Connections = append(r.Connections, c)
	}
	slices.SortFunc(r.Connections, func(a, b sallyport.Connection) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Reason, b.Reason))
	})
	for l := range p.limits {
		r.LimitsHit = append(r.LimitsHit, l)
	}
	slices.Sort(r.LimitsHit)
	e, err := audit.NewEntry(d.tenant, sallyport.EntryServer, "", r)
	if err != nil {
		return err
	}
	e.Time = now
	return d.append(e)
}

// Close writes what is left. What is noted after it is lost.
func (d *Diary) Close() error {
	close(d.stop)
	<-d.done
	return nil
}
