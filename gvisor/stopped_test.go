package gvisor

import (
	"testing"

	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/payload"
)

// A run that is stopped as its program starts is not told of as one that never began.
func TestStoppedAsItStarts(t *testing.T) {
	report := make(chan payload.Record, 1)
	report <- payload.Record{Kind: payload.Started}
	close(report)
	s := &sandbox{report: report, end: tier.ErrStopped}
	s.hearOut()
	var res tier.Result
	if end := (tier.End{Started: s.started, Why: s.end}); !end.Complete(&res) || res.KilledBy != tier.KilledByCaller {
		t.Errorf("%+v, %+v", s, res)
	}
}
