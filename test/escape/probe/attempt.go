package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// An attempt is one way to what must stay shut. try returns nil where it led
// there: that a call was taken is not enough, unless the call itself is what
// must be refused.
type attempt struct {
	name string
	try  func() error
}

var (
	errNoAnswer = errors.New("no answer")
	errNoEffect = errors.New("taken, but without effect")
)

// attemptAll makes each attempt on a thread of its own, which ends with it: some
// change the thread's namespaces. PROBE_ONLY names those to make, with commas
// between; outside, some would do harm.
func attemptAll(all []attempt) {
	only := os.Getenv("PROBE_ONLY")
	for _, a := range all {
		if only != "" && !strings.Contains(","+only+",", ","+a.name+",") {
			continue
		}
		done := make(chan error, 1)
		go func() {
			runtime.LockOSThread()
			done <- a.try()
		}()
		var err error
		select {
		case err = <-done:
		case <-time.After(10 * time.Second):
			err = errNoAnswer
		}
		if err != nil {
			fmt.Println("NOT", a.name+":", err)
			continue
		}
		fmt.Println("DONE", a.name)
	}
}
