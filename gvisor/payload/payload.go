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
// Go ends the stream.
const (
	Disk   Kind = 'D' // tmpfs options that bound all writable folders together
	Procs  Kind = 'P' // uint32: tasks that the program may have at once
	Dir    Kind = 'W' // working folder, absolute
	Folder Kind = 'M' // folder to make, relative to the working folder
	File   Kind = 'F' // file to make, relative to the working folder
	Data   Kind = 'C' // content of the last File; may repeat
	Arg    Kind = 'A' // one element of argv
	Env    Kind = 'E' // one NAME=value
	Proxy  Kind = 'X' // unix socket that the proxy on the loopback interface leads to; "" = it denies everything by itself
	CA     Kind = 'T' // PEM to add to the image's certificates, in the file Bundle
	Ahead  Kind = 'Z' // start what the Args so far say, ahead of the program; see the text below
	Go     Kind = 'G' // start now
)

// After Ahead, process 1 starts an interpreter with two pipes more: it writes a
// byte to descriptor 4 when it is ready, and reads from descriptor 3, to its
// end, what to be: argv and then the environment, each element ended by a NUL
// byte, with the count of argv as the first element. Without Args there is no
// interpreter and the program is started at Go as ever.
const (
	AheadOrders = 3
	AheadReady  = 4
)

// The records from the sandbox.
const (
	Ready   Kind = 'w' // after Ahead: the sandbox waits for its program
	Started Kind = 's' // the program runs; Facts
	Failed  Kind = 'x' // uint32 errno, then text: the program could not be started
	Denied  Kind = 'n' // what a program asked a proxy for that denies everything; at most MaxDenied
	Exit    Kind = 'e' // uint32 wait status of the program
	Done    Kind = 'z' // no process of the run is left, or the drain window is over
)

// MaxRecord is the largest record. Content of files is split.
const MaxRecord = 1 << 20

// ProxyPort is where the proxy listens, on the sandbox's loopback interface.
const ProxyPort = 3128

// Bundle is the file of the certificates that a sandbox with a CA trusts.
const Bundle = "/run/sallyport-ca.pem"

// MaxDenied bounds the Denied records of one run.
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
