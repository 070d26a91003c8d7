package config

import (
	"strconv"
	"time"

	"sallyport.dev/sallyport"
)

const toolPattern = `^([A-Za-z0-9_-]{1,48}|[A-Za-z0-9_-]{0,47}\*)$`

// ledger judges what bounds calls by what was done before.
func (d *decoder) ledger(c *Config) {
	i := c.Idempotency
	d.within("idempotency.retention", i.Retention >= time.Hour && i.Retention <= 10*365*24*time.Hour, "between 1h and ten years")
	d.within("idempotency.open", i.Open > 0 && i.Open <= 1_000_000, "between 1 and 1000000")
	d.within("idempotency.outputs", i.Outputs >= MiB, "at least 1MiB")
	d.within("idempotency.lease", i.Lease >= 100*time.Millisecond && i.Lease <= 24*time.Hour, "between 100ms and 24h")
	d.within("idempotency.wait", i.Wait > 0 && i.Wait <= time.Hour, "between 1ms and 1h")
	for n, w := range c.Limits.Windows {
		key := "limits.windows[" + strconv.Itoa(n) + "]"
		d.tool(key, w.Tool)
		d.span(key, w.Per)
		if w.Limit == "" {
			d.fail(d.places[key], `write limit: "1000"`, "%s has no limit", key)
		} else if _, err := sallyport.ParseAmount(w.Limit); err != nil || w.Limit[0] == '-' {
			d.fail(d.places[key+".limit"], `write a decimal, such as "1000" or "99.50"`, "%s.limit: %q is not an amount", key, w.Limit)
		}
		if w.Currency != "" {
			d.name(key+".currency", "currency", w.Currency, `^[A-Za-z]{3,8}$`, "write its code, such as EUR")
		}
		if w.By != "" {
			d.oneOf(key+".by", w.By, sallyport.ByPrincipal, sallyport.ByRecipient, sallyport.ByTenant)
		}
	}
	for n, q := range c.Limits.Quotas {
		key := "limits.quotas[" + strconv.Itoa(n) + "]"
		d.tool(key, q.Tool)
		d.span(key, q.Per)
		if q.Agent != "" {
			d.name(key+".agent", "agent", q.Agent, agentName, "use letters, digits, dots, hyphens and underscores, at most 64")
		}
		if q.Calls < 1 {
			d.fail(d.places[key], "write calls: 100", "%s.calls must be at least 1", key)
		}
	}
}

func (d *decoder) tool(key, pattern string) {
	if pattern != "" {
		d.name(key+".tool", "tool", pattern, toolPattern, "write the name that agents see, or its beginning and a *")
	}
}

// span checks a span of time; 0 is the default.
func (d *decoder) span(key string, per time.Duration) {
	if _, set := d.places[key+".per"]; set {
		d.within(key+".per", per >= time.Second && per <= sallyport.MaxWindow, "between 1s and "+strconv.Itoa(int(sallyport.MaxWindow.Hours()))+"h")
	}
}
