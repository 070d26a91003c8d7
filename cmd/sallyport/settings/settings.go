// Package settings says the configuration in the words of the engines.
package settings

import (
	"slices"
	"time"

	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/limit"
	"sallyport.dev/sallyport/redact"
)

// Limits are what one principal may ask for at once.
func Limits(c *config.Config) limit.Config {
	l := c.Limits
	return limit.Config{
		Rate: l.Rate, Burst: l.Burst, Bytes: int64(l.Bytes), Body: int(l.Body), Concurrency: l.Concurrency, Total: l.Total,
	}
}

// Clocks are those of calls. Who holds a call that waits for its client gives up
// before the path does.
func Clocks(c *config.Config) gateway.CallLimits {
	return gateway.CallLimits{
		DecideBy: c.Approvals.DecideBy, InFlight: c.Idempotency.Wait, Lease: c.Idempotency.Lease, Taint: c.Redact.Taint,
		Answer: c.Limits.Answer + time.Minute, Task: c.Limits.Task,
	}
}

// PII is which personal data is masked.
func PII(kinds []string) redact.PII {
	return redact.PII{Card: slices.Contains(kinds, "card"), SSN: slices.Contains(kinds, "ssn"), Email: slices.Contains(kinds, "email")}
}
