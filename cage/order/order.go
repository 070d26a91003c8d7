// Package order is how sallyport-cage is told what to give up before it becomes
// a program: records as package payload frames them, on descriptor FD. It is
// read by a program that must start in nothing.
package order

import "sallyport.dev/sallyport/tier/payload"

// The descriptors of sallyport-cage. Those that the program is given follow.
const (
	FD      = 3 // the records; whoever holds the other end is alive
	Program = 4 // the file to execute
	Report  = 5 // errno (uint32) and text, if it could not; nothing if it could
	Given   = 6
)

// Kept is the descriptor of the program's file while it is executed. It is
// beyond what a caged program may have open, so that no file takes its place.
const Kept = 1000

// RandomPath is where programs find randomness.
const RandomPath = "/dev/urandom"

// The records, followed in this order whatever the order in which they come. What
// is not ordered is not given up.
const (
	Join     payload.Kind = 'J' // a folder of a control group
	Host     payload.Kind = 'H' // host name
	Root     payload.Kind = 'R' // a folder to be the root, read-only
	Empty    payload.Kind = 'M' // a folder over which an empty root is mounted
	Place    payload.Kind = 'P' // a folder of the host, NUL, and an empty one of the root: seen there, read-only
	Random   payload.Kind = 'V' // the host's source of randomness is seen in the root, where an empty file is
	User     payload.Kind = 'U' // uint32: uid and gid, without capabilities and groups
	NoNew    payload.Kind = 'N' // no_new_privs
	Die      payload.Kind = 'X' // with whoever started it
	Close    payload.Kind = 'C' // every descriptor that is not given
	Limit    payload.Kind = 'L' // uint32 resource, uint64 value
	Landlock payload.Kind = 'K' // only read the root
	Filter   payload.Kind = 'F' // program of the system call filter
	Files    payload.Kind = 'D' // uint32: descriptors given, from 3 on
	Arg      payload.Kind = 'A'
	Env      payload.Kind = 'E'
	Go       payload.Kind = 'G' // the last
)
