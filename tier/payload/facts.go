package payload

// Facts are what process 1 reads back from its kernel once everything is set,
// just before the program starts.
type Facts struct {
	Procs        uint32 // tasks that the program may have at once
	Disk         uint64 // bytes of the file system behind all writable folders
	ReadOnlyRoot bool
	NoNewPrivs   bool
	Capabilities bool     // the bounding set is not empty
	Kernel       string   // release and version
	Links        []string // names of the network interfaces
}

const (
	factReadOnly = 1 << iota
	factNoNewPrivs
	factCapabilities
)

// Append appends the facts to dst, for the record Started.
func (f Facts) Append(dst []byte) []byte {
	dst = AppendUint32(dst, f.Procs)
	dst = AppendUint32(AppendUint32(dst, uint32(f.Disk)), uint32(f.Disk>>32))
	var flags byte
	for i, set := range []bool{f.ReadOnlyRoot, f.NoNewPrivs, f.Capabilities} {
		if set {
			flags |= 1 << i
		}
	}
	dst = append(append(dst, flags), f.Kernel...)
	for _, l := range f.Links {
		dst = append(append(dst, 0), l...)
	}
	return dst
}

// ParseFacts reads what Append wrote. ok is false where b is anything else.
func ParseFacts(b []byte) (f Facts, ok bool) {
	const fixed = 13
	if len(b) < fixed {
		return f, false
	}
	flags := b[fixed-1]
	f = Facts{
		Procs: Uint32(b), Disk: uint64(Uint32(b[4:])) | uint64(Uint32(b[8:]))<<32,
		ReadOnlyRoot: flags&factReadOnly != 0, NoNewPrivs: flags&factNoNewPrivs != 0, Capabilities: flags&factCapabilities != 0,
	}
	words := [][]byte{nil}
	for _, c := range b[fixed:] {
		if c == 0 {
			words = append(words, nil)
			continue
		}
		words[len(words)-1] = append(words[len(words)-1], c)
	}
	f.Kernel = string(words[0])
	for _, w := range words[1:] {
		f.Links = append(f.Links, string(w))
	}
	return f, true
}
