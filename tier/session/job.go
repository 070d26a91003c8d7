package session

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/capture"
	"sallyport.dev/sallyport/tier/payload"
)

// maxJobs bounds the jobs of one session whose output is kept.
const maxJobs = 16

// A job is a program in the background of a session. What it writes, stdout and
// stderr together, is kept from its beginning, up to the limit for output.
type job struct {
	id uint32

	mu     sync.Mutex
	output capture.Head
	status *uint32
}

// A JobState is what a job has written from an offset on, and how it is.
type JobState struct {
	Job       uint32
	Output    []byte
	Next      int64 // offset at which to go on
	Running   bool
	ExitCode  int
	Signal    string
	Truncated bool
}

// newJob makes a job, at the cost of the oldest that has ended.
func (s *session) newJob(c Call) (*job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.jobs) >= maxJobs {
		i := slices.IndexFunc(s.jobs, func(j *job) bool { return j.ended() })
		if i < 0 {
			return nil, refuse(sallyport.Unavailable, "wait until one ends, or end the session", "%d programs run in the background of this session", maxJobs)
		}
		s.jobs = slices.Delete(s.jobs, i, i+1)
	}
	id := uint32(1)
	if n := len(s.jobs); n > 0 {
		id = s.jobs[n-1].id + 1
	}
	j := &job{id: id, output: capture.Head{Max: c.Request.Limits.Output}}
	s.jobs = append(s.jobs, j)
	return j, nil
}

func (s *session) drop(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs = slices.DeleteFunc(s.jobs, func(o *job) bool { return o == j })
}

func (s *session) job(id uint32) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		if j.id == id {
			return j
		}
	}
	return nil
}

// running counts the jobs that run.
func (s *session) running() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		if !j.ended() {
			n++
		}
	}
	return n
}

// ofJob keeps what a record says of a job.
func (s *session) ofJob(r payload.Record) bool {
	if len(r.Data) < 4 || r.Kind != payload.Stdout && r.Kind != payload.Stderr && r.Kind != payload.JobExit {
		return false
	}
	id := payload.Uint32(r.Data)
	if id == 0 {
		return false
	}
	if j := s.job(id); j != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		if r.Kind == payload.JobExit {
			status := payload.Uint32(r.Data[4:])
			j.status = &status
		} else {
			j.output.Add(r.Data[4:])
		}
	}
	return true
}

func (j *job) ended() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.status != nil
}

// Job tells what a job of the owner's session has written from an offset on.
func (x *Sessions) Job(_ context.Context, k Key, id uint32, offset int64) (JobState, error) {
	s := x.look(k)
	if s == nil {
		return JobState{}, unknown(k)
	}
	j := s.job(id)
	if j == nil {
		return JobState{}, refuse(sallyport.NotFound, "use the number that the run with background: true returned", "unknown job %d of the session %.64q", id, k.Name)
	}
	s.touch()
	j.mu.Lock()
	defer j.mu.Unlock()
	from := min(max(offset, 0), int64(len(j.output.Kept)))
	st := JobState{Job: id, Output: slices.Clone(j.output.Kept[from:]), Next: int64(len(j.output.Kept)), Running: j.status == nil, Truncated: j.output.Truncated}
	if j.status != nil {
		st.ExitCode, st.Signal = tier.ExitOf(unix.WaitStatus(*j.status))
	}
	return st, nil
}

// look finds a session without taking a turn in it.
func (x *Sessions) look(k Key) *session {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.open[k]; s != nil && s.ready.Load() && !s.over() {
		return s
	}
	return nil
}
