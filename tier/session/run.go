package session

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/ahead"
	"sallyport.dev/sallyport/tier/capture"
	"sallyport.dev/sallyport/tier/payload"
	"sallyport.dev/sallyport/tier/stay"
)

// A Call is one program to run in a session.
type Call struct {
	Key      Key
	Terms    Terms
	Request  tier.Request // Argv is not used; Env and Way are those of the session
	Tier     string       // whose sandbox it is, where the session begins
	Language string       // "python", "javascript", "shell"
	Code     []byte
	Secret   bool                        // the environment holds secrets: the session is never frozen, and hands nothing out unseen
	Job      bool                        // start it in the background
	Told     func(stderr bool, b []byte) // of output as it comes; may be nil
}

// A Result is how a call ended.
type Result struct {
	tier.Result
	New   bool   // the session began with this call
	Ended string // why the session is over, "" if it goes on
	Lost  bool   // the interpreter ended, and its variables with it
	Job   uint32 // of a program in the background

	ended bool // the program did, by itself or by a signal
}

// languages are those that sessions speak: the resident interpreter of each, nil if it
// keeps none, and what a program starts with that is a process of its own.
var languages = map[string]struct{ resident, alone []string }{
	"python":     {ahead.Resident("python"), []string{"python3", "-u"}},
	"javascript": {ahead.Resident("javascript"), []string{"node"}},
	"shell":      {nil, []string{"bash"}},
}

// Run runs one program in a session, which it makes if there is none. A program
// that fails is a Result. One that is killed, for time or memory, takes the
// session with it.
func (x *Sessions) Run(ctx context.Context, c Call) (Result, error) {
	began := time.Now()
	if _, ok := languages[c.Language]; !ok {
		return Result{}, refuse(sallyport.Invalid, "use python, javascript or shell", "sessions do not speak %.40q", c.Language)
	}
	if x.cfg.Hosts[c.Tier] == nil {
		return Result{}, refuse(sallyport.Invalid, "run it without a session, or in another tier", "tier %.40q keeps no sessions", c.Tier)
	}
	if c.Job && c.Secret {
		return Result{}, withheld
	}
	if err := check(c); err != nil {
		return Result{}, err
	}
	s, fresh, err := x.enter(ctx, c.Key, c.Terms, &c)
	if err != nil {
		return Result{}, err
	}
	defer x.forget(s)
	defer x.leave(s)
	box := s.awake()
	if box == nil {
		return Result{}, sandboxError(s.why)
	}
	for _, f := range c.Request.Files {
		if err := s.put(f.Path, f.Content); err != nil {
			return Result{}, err
		}
	}
	if err := box.Begin(c.Request.CallID, c.Request.Limits.Timeout); err != nil {
		return Result{}, err
	}
	res, err := s.run(ctx, box, c)
	res.ID, res.New, res.Duration = box.ID, fresh, time.Since(began)
	held := box.End(c.Request.Limits)
	res.Connections = append(held.Connections, s.denials()...)
	res.Receipt = receipt(held.Receipt, res)
	if err == nil && res.Job == 0 {
		res.PeakMemory, res.LimitsHit = held.PeakMemory, slices.Compact(slices.Sorted(slices.Values(append(res.LimitsHit, held.LimitsHit...))))
	}
	if res.Truncated {
		res.LimitsHit = append(res.LimitsHit, tier.LimitOutput)
	}
	return res, err
}

// receipt adds how a program ended, and that its sandbox was there before it.
func receipt(r sallyport.Receipt, res Result) sallyport.Receipt {
	r.Warm = !res.New
	switch {
	case res.KilledBy != "":
		r.Exit = string(res.KilledBy)
	case res.Signal != "":
		r.Exit = "signaled"
	case res.ended:
		r.Exit = "exited"
	}
	return r
}

// check refuses what no sandbox could be asked for, before there is one.
func check(c Call) error {
	r := c.Request
	r.Argv = []string{"-"}
	r.Files = append([]tier.File{{Path: "code", Content: c.Code}}, r.Files...)
	return r.Check()
}

// run runs a program and follows it to its end.
func (s *session) run(ctx context.Context, box *stay.Kept, c Call) (res Result, err error) {
	request, job, err := s.order(c)
	if err != nil {
		return res, err
	}
	answers := s.ask(request)
	if job != nil {
		_, err := s.last(answers, nil)
		if err != nil {
			s.drop(job)
			return res, err
		}
		res.Job = job.id
		return res, nil
	}
	stdout, stderr := capture.Head{Max: c.Request.Limits.Output}, capture.Head{Max: c.Request.Limits.Output}
	exit, why, err := s.follow(ctx, box, c, answers, func(r payload.Record) {
		k := &stdout
		switch r.Kind { //nolint:exhaustive // what else comes is followed by s.follow
		case payload.Full:
			res.LimitsHit = []string{tier.LimitDisk}
			return
		case payload.Stderr:
			k = &stderr
		}
		if kept := k.Add(r.Data); c.Told != nil && len(kept) > 0 {
			c.Told(r.Kind == payload.Stderr, kept)
		}
	})
	if err != nil {
		return res, err
	}
	res.Stdout, res.Stderr, res.Truncated = stdout.Kept, stderr.Kept, stdout.Truncated || stderr.Truncated
	switch why {
	case "":
		res.status(exit.Data)
		if !s.secret {
			_, err = s.last(s.ask(payload.Append(nil, payload.Collect, nil)), func(r payload.Record) error {
				res.Output.Note(r.Kind, r.Data)
				return nil
			})
		}
	case string(tier.KilledByTimeout), string(tier.KilledByMemory):
		res.KilledBy, res.Ended = tier.KilledBy(why), why
		res.ExitCode, res.Signal = 128+int(unix.SIGKILL), "SIGKILL"
	default:
		return res, sandboxError(why)
	}
	return res, err
}

func (r *Result) status(data []byte) {
	r.ExitCode, r.Signal = tier.ExitOf(unix.WaitStatus(payload.Uint32(data)))
	r.Lost, r.ended = len(data) > 4, true
}

// order is the request that runs a program.
func (s *session) order(c Call) (request []byte, j *job, err error) {
	lang := languages[c.Language]
	s.spoke(c.Language)
	b := split(nil, payload.Code, c.Code)
	b = split(b, payload.Stdin, c.Request.Stdin)
	argv := lang.resident
	switch {
	case c.Job:
		argv = lang.alone
		if j, err = s.newJob(c); err != nil {
			return nil, nil, err
		}
	case argv == nil:
		argv = ahead.Shell()
	}
	for _, a := range argv {
		b = payload.Append(b, payload.Arg, []byte(a))
	}
	switch {
	case j != nil:
		b = payload.Append(b, payload.Spawn, payload.AppendUint32(nil, j.id))
	case lang.resident == nil:
		b = payload.Append(b, payload.Spawn, payload.AppendUint32(nil, 0))
	default:
		b = payload.Append(b, payload.Interpret, []byte(c.Language))
	}
	return b, j, nil
}

func split(b []byte, k payload.Kind, data []byte) []byte {
	for len(data) > 0 {
		n := min(len(data), payload.MaxRecord)
		b = payload.Append(b, k, data[:n])
		data = data[n:]
	}
	return b
}

const oomPoll = 100 * time.Millisecond

// follow waits for the end of a program. why says what ended it, and the
// session, before its time.
func (s *session) follow(ctx context.Context, box *stay.Kept, c Call, answers <-chan payload.Record, output func(payload.Record)) (exit payload.Record, why string, err error) {
	late := time.NewTimer(c.Request.Limits.Timeout)
	defer late.Stop()
	tick := time.NewTicker(oomPoll)
	defer tick.Stop()
	for {
		select {
		case r := <-answers:
			switch r.Kind {
			case payload.Started:
				late.Reset(c.Request.Limits.Timeout)
			case payload.Stdout, payload.Stderr, payload.Full:
				output(r)
			case payload.Exit:
				if box.OutOfMemory() { // the kernel chose a process of the program
					s.end(string(tier.KilledByMemory))
				}
				return r, s.endedBy(), nil
			case payload.Refused:
				return r, "", refusal(r.Data)
			default: // no part of this answer
			}
			continue
		case <-late.C:
			s.end(string(tier.KilledByTimeout))
		case <-tick.C:
			if !box.OutOfMemory() {
				continue
			}
			s.end(string(tier.KilledByMemory))
		case <-ctx.Done():
			s.end("the caller went away")
			return payload.Record{}, "", ctx.Err()
		case <-s.gone:
		}
		<-s.gone
		drain(answers, output)
		return payload.Record{}, s.why, nil
	}
}

// drain takes the output that came before the end.
func drain(answers <-chan payload.Record, output func(payload.Record)) {
	for {
		select {
		case r := <-answers:
			if r.Kind == payload.Stdout || r.Kind == payload.Stderr {
				output(r)
			}
		default:
			return
		}
	}
}

// refusal gives what process 1 refused words and a code.
func refusal(data []byte) error {
	errno, what := unix.Errno(payload.Uint32(data)), string(data[min(4, len(data)):])
	switch errno {
	case unix.ENOENT:
		return refuse(sallyport.NotFound, "list the folder to see what is there", "%s: there is no such file", what)
	case unix.ENOSPC:
		return refuse(sallyport.TooLarge, "store less, delete files of the session, or use a tool with a larger disk limit", "%s: the session's disk has no room for it", what)
	case unix.EXDEV, unix.ELOOP:
		return refuse(sallyport.Invalid, "use a path within the session's working folder", "%s: the path leads out of the session's folder", what)
	case unix.EISDIR:
		return refuse(sallyport.Invalid, "name a file", "%s: it is a folder", what)
	case unix.ENOTDIR:
		return refuse(sallyport.Invalid, "name a folder", "%s: a part of the path is no folder", what)
	case unix.EINVAL, unix.ENXIO:
		return refuse(sallyport.Invalid, "only files can be read and written", "%s: it is not a regular file", what)
	case unix.EEXIST:
		return refuse(sallyport.Invalid, "only files can be read and written", "%s: there is something that is not a file, such as a link", what)
	default:
		return refuse(sallyport.Invalid, "see the message", "%s: %s", what, errno.Error())
	}
}

func logEnd(id string, err error) {
	if err != nil {
		slog.Error("a session's sandbox could not be destroyed", "sandbox", id, "err", errors.Unwrap(err))
	}
}
