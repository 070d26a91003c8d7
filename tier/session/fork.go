package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier/capture"
	"sallyport.dev/sallyport/tier/stay"
)

// maxForks bounds the siblings that one call makes.
const maxForks = 8

// Fork makes a sibling of the owner's session for each of names, with all that the
// session has in memory and on its disk, and tells for how long it was held. Each
// goes its own way from here, with random numbers, names, ids and grants of its own;
// the session goes on. All are made, or none.
func (x *Sessions) Fork(ctx context.Context, k Key, terms Terms, names []string) (paused time.Duration, err error) {
	if len(names) == 0 || len(names) > maxForks {
		return 0, refuse(sallyport.Invalid, "name 1 to 8 siblings", "%d siblings are asked for", len(names))
	}
	s, err := x.visit(ctx, k, terms)
	if err != nil {
		return 0, err
	}
	defer x.leave(s)
	can, err := s.forker()
	if err != nil {
		return 0, err
	}
	siblings, err := x.placeAll(s, names)
	if err == nil {
		paused, err = s.fork(ctx, can, siblings)
	}
	for _, t := range siblings {
		if err != nil {
			x.end(t, "it could not be made")
		}
		x.leave(t)
	}
	return paused, err
}

// forker is what can copy the session's sandbox.
func (s *session) forker() (stay.Forker, error) {
	box := s.awake()
	if box == nil {
		return nil, sandboxError(s.endedBy())
	}
	can, ok := box.Box.(stay.Forker)
	if !ok {
		return nil, refuse(sallyport.Invalid, "begin a session with tier: microvm", "the session %.64q is not in a tier whose sandboxes can be copied", s.key.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node {
		return nil, refuse(sallyport.Invalid, "fork a session in which only Python and shell have run",
			"JavaScript has run in the session %.64q, and Node.js would have the same random numbers in each copy", s.key.Name)
	}
	return can, nil
}

// placeAll makes places for siblings, whose turns are the caller's.
func (x *Sessions) placeAll(s *session, names []string) (all []*session, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, name := range names {
		k := Key{s.key.Owner, name}
		if t := x.open[k]; t != nil && !t.over() {
			err = refuse(sallyport.Conflict, "use names that are free", "there is a session %.64q already", name)
			break
		}
		var t *session
		if t, err = x.place(k, s.terms); err != nil {
			break
		}
		all = append(all, t)
	}
	return all, err
}

func (s *session) fork(ctx context.Context, can stay.Forker, siblings []*session) (time.Duration, error) {
	s.mu.Lock()
	jobs := make([][]*job, len(siblings))
	for i := range jobs {
		for _, j := range s.jobs {
			jobs[i] = append(jobs[i], j.copied())
		}
	}
	s.mu.Unlock()
	boxes, paused, err := can.Fork(ctx, len(siblings))
	if err != nil && s.over() {
		err = errors.Join(sandboxError(s.why), err)
	}
	if err != nil {
		return 0, err
	}
	for i, t := range siblings {
		t.request, t.secret, t.jobs, t.born = s.request, s.secret, jobs[i], s.born // what it holds is as old
		t.ready.Store(true)
		err = errors.Join(err, t.live(&boxes[i]))
	}
	return paused, err
}

// copied is a job as its copy goes on.
func (j *job) copied() *job {
	j.mu.Lock()
	defer j.mu.Unlock()
	return &job{id: j.id, output: capture.Head{Max: j.output.Max, Kept: slices.Clone(j.output.Kept), Truncated: j.output.Truncated}, status: j.status}
}
