package sallyport

import "time"

// A Taint says that a principal has read what strangers wrote: what it asks for
// next may be their wish. It lasts for some time.
type Taint struct {
	Tenant    string    `json:"tenant"`
	Principal string    `json:"principal"`
	Tool      string    `json:"tool"`    // whose result it was
	CallID    string    `json:"call_id"` // that returned it
	Reason    string    `json:"reason"`  // why the result is not trusted
	At        time.Time `json:"at"`
	Until     time.Time `json:"until"`
}
