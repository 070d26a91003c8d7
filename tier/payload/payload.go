// Package payload is how a sandbox is told what to run: a stream of small
// records on an inherited pipe, so that neither a command line, nor an
// environment, nor a file of a request is ever written to a host's disk.
//
// It is read inside the sandbox by sallyport-init, which must start in nothing:
// this package imports nothing but errors.
package payload

import "errors"

// A Kind says what a record holds.
type Kind byte

// The records to the sandbox, in the order in which they are sent. Exactly one
// Go ends the stream of records.
const (
	Disk   Kind = 'D' // tmpfs options that bound all writable folders together
	Procs  Kind = 'P' // uint32: tasks that the program may have at once
	Dir    Kind = 'W' // working folder, absolute
	User   Kind = 'U' // uint32: uid and gid of the program; without it 1000
	Place  Kind = 'Y' // show one mount of the folder Mounts elsewhere: its name there, NUL, an absolute path
	Stay   Kind = 'S' // the stream goes on after Go: each byte more asks the program to end (SIGTERM)
	Folder Kind = 'M' // folder to make, relative to the working folder
	File   Kind = 'F' // file to make, relative to the working folder
	Data   Kind = 'C' // content of the last File; may repeat
	Arg    Kind = 'A' // one element of argv
	Env    Kind = 'E' // one NAME=value
	Proxy  Kind = 'X' // unix socket that the proxy on the loopback interface leads to; "" = it denies everything by itself
	CA     Kind = 'T' // PEM to add to the image's certificates, in the file Bundle
	Output Kind = 'O' // make the folder OutputDir, and tell at the end what is in it
	Talk   Kind = 'H' // make the socket TalkSocket, for one program that connects to it; the stream goes on after Go
	Said   Kind = 'Q' // after Go: bytes for that program
	Ahead  Kind = 'Z' // start what the Args so far say, ahead of the program; see the text below
	Go     Kind = 'G' // start now
)

// At Ahead, process 1 starts an interpreter with two pipes more: it writes a
// byte to descriptor AheadReady when it is ready, and reads its order from
// AheadOrder, which is the descriptor AheadLine of process 1: from the host, with
// nobody between. Records that follow make files, and Go is answered by Started
// when they are there; the order is sent then. Without Args there is no
// interpreter, and the program is started at Go as ever.
const (
	AheadOrder = 3
	AheadReady = 4
	AheadLine  = 5
)

// MaxOrder bounds an order. A pipe takes as much at once.
const MaxOrder = 32 << 10

// AppendOrder appends the order of an interpreter that was started ahead: the
// size of what follows, how many words are of argv and how many are variables
// (uint32 each), the words, each ended by a NUL byte, and the program's text. The
// interpreter stores the text as the file argv[1]; where there is none, the file
// is there already.
func AppendOrder(dst []byte, argv, env []string, text []byte) []byte {
	size := 8 + len(text)
	words := append(append([]string{}, argv...), env...)
	for _, w := range words {
		size += len(w) + 1
	}
	dst = AppendUint32(AppendUint32(AppendUint32(dst, uint32(size)), uint32(len(argv))), uint32(len(env)))
	for _, w := range words {
		dst = append(append(dst, w...), 0)
	}
	return append(dst, text...)
}

// The records from the sandbox.
const (
	Ready   Kind = 'w' // after Ahead: the sandbox waits for its program; after Keep: for requests; Facts
	Started Kind = 's' // the program runs; Facts, if they were not told before
	Failed  Kind = 'x' // uint32 errno, then text: the program could not be started
	Denied  Kind = 'n' // what a program asked a proxy for that denies everything; at most MaxDenied a minute
	Exit    Kind = 'e' // uint32 wait status of the program
	Full    Kind = 'u' // nothing more fits on the disk now that the program has ended

	Artifact Kind = 'f' // uint64 size, name: a file of the output folder, whose content follows as Data
	LeftOut  Kind = 'v' // uint64 size, name: one that is beyond the bounds

	Heard Kind = 'h' // bytes that the program wrote to TalkSocket

	Done Kind = 'z' // no process of the run is left, or the drain window is over

	// Over is not of process 1, but of the sandbox's kernel: uint32 wait status.
	// The program and all that it started have ended, and the output folder is as
	// it was; it stands for Exit and Done.
	Over Kind = 'y'
)

// A sandbox of a session (package session) is started with one word more. It
// then reads its records from descriptor 0, writes its own to 1, and lives until
// it is killed: after Keep it takes requests, one at a time. A request is its
// records in this order, and is answered by one Exit, OK or Refused.
const (
	Keep      Kind = 'K' // to it: from here on, requests
	Code      Kind = 'c' // of the next Interpret or Spawn; may repeat
	Stdin     Kind = 'i' // of the next Interpret or Spawn; may repeat
	Interpret Kind = 'I' // name of the interpreter that runs the Code; the Args so far start it where it is not running
	Spawn     Kind = 'B' // uint32 job: run the Args so far and the name of a file with the Code. Job 0 is waited for; others get OK and go on
	Put       Kind = 'p' // uint64 size (all ones: not known), path: what follows as Data is stored there
	Commit    Kind = 'q' // ends a Put: the file is whole, and appears now
	Abort     Kind = 'a' // ends a Put: nothing was stored
	Get       Kind = 'g' // uint64 offset, uint64 length (all ones: to its end), path of a file; answered by Data before OK
	Collect   Kind = 'o' // answered by an Artifact or LeftOut for each file of OutputDir that is new or has changed, before OK
	List      Kind = 'l' // path of a folder; answered by Entries before OK

	Stdout  Kind = '1' // uint32 job, bytes; may come at any time, as may JobExit
	Stderr  Kind = '2' // uint32 job, bytes
	JobExit Kind = 'j' // uint32 job, uint32 wait status
	Entry   Kind = 't' // byte kind (f, d, l, or ?), uint64 size, uint64 time (s), name
	OK      Kind = 'k' // the request is done; to a Put: uint64, bytes that are free
	Refused Kind = 'r' // uint32 errno, text: the request was not done
)

// An Exit of a session is followed by a byte 1 where the interpreter has ended.

// Folder and names of what the interpreters of a session are given.
const (
	SessionDir   = "/run/session"
	SessionCode  = SessionDir + "/code"
	SessionStdin = SessionDir + "/stdin"
	SessionOwn   = SessionDir + "/own" // the program's own
)

// MaxEntries bounds the Entries of one List; the OK then holds the text "more".
const MaxEntries = 10000

// OutputDir is the folder, beside the working folder, whose files are part of a
// result.
const OutputDir = "/home/output"

// Bounds of what a result takes from OutputDir.
const (
	MaxArtifacts     = 16
	MaxArtifactBytes = 600 << 10
	MaxPath          = 4096 // bytes of the path of a file there; one with a longer path is not told of
)

// TalkSocket is where a program talks with whoever had it run.
const TalkSocket = "/run/sallyport-talk"

// Mounts is the folder of the mounts to place. It is gone when the program starts.
const Mounts = "/mnt"

// MaxRecord is the largest record. Content of files is split.
const MaxRecord = 1 << 20

// ProxyPort is where the proxy listens, on the sandbox's loopback interface.
const ProxyPort = 3128

// Bundle is the file of the certificates that a sandbox with a CA trusts.
const Bundle = "/run/sallyport-ca.pem"

// MaxDenied bounds the Denied records of a minute, and what is told of one run.
const MaxDenied = 32

// HeaderSize is the size of a record's header: its kind and its length.
const HeaderSize = 5

// ErrTooLarge means that a header announced more than MaxRecord bytes.
var ErrTooLarge = errors.New("record too large")

// Append appends one record to dst.
// Preconditions: len(data) ≤ MaxRecord.
func Append(dst []byte, k Kind, data []byte) []byte {
	dst = append(dst, byte(k))
	dst = AppendUint32(dst, uint32(len(data)))
	return append(dst, data...)
}

// Header reads a record's header.
// Preconditions: len(b) ≥ HeaderSize.
func Header(b []byte) (Kind, int, error) {
	n := Uint32(b[1:])
	if n > MaxRecord {
		return 0, 0, ErrTooLarge
	}
	return Kind(b[0]), int(n), nil
}

// AppendUint32 appends v, little endian.
func AppendUint32(dst []byte, v uint32) []byte {
	return append(dst, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
}

// Uint32 reads a little endian number; a short slice reads as 0.
func Uint32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

// AppendUint64 appends v, little endian.
func AppendUint64(dst []byte, v uint64) []byte {
	return AppendUint32(AppendUint32(dst, uint32(v)), uint32(v>>32))
}

// Uint64 reads a little endian number; a short slice reads as 0.
func Uint64(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return uint64(Uint32(b)) | uint64(Uint32(b[4:]))<<32
}

// A reader is an io.Reader.
type reader interface{ Read([]byte) (int, error) }

// Read reads one record. An error means that nothing follows.
func Read(r reader) (Kind, []byte, error) {
	var h [HeaderSize]byte
	if err := readFull(r, h[:]); err != nil {
		return 0, nil, err
	}
	k, n, err := Header(h[:])
	if err != nil {
		return 0, nil, err
	}
	data := make([]byte, n)
	return k, data, readFull(r, data)
}

func readFull(r reader, b []byte) error {
	for len(b) > 0 {
		n, err := r.Read(b)
		b = b[n:]
		if err != nil && len(b) > 0 {
			return err
		}
	}
	return nil
}
