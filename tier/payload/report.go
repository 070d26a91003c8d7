package payload

// A Record is one that was read.
type Record struct {
	Kind Kind
	Data []byte
}

// A readCloser is an io.ReadCloser.
type readCloser interface {
	reader
	Close() error
}

// Report reads the records of a sandbox, until they end or are more than most bytes,
// and closes r then. They must be taken.
func Report(r readCloser, most int) <-chan Record {
	out := make(chan Record, 8+MaxDenied)
	go func() {
		defer close(out)
		defer r.Close()
		for {
			k, data, err := Read(r)
			if most -= HeaderSize + len(data); err != nil || most < 0 {
				return
			}
			out <- Record{k, data}
		}
	}()
	return out
}
