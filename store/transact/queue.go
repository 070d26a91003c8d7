package transact

import (
	"slices"
	"sync"
)

// maxBatch bounds how many updates share a transaction.
const maxBatch = 64

// A queue holds the updates that wait for the writing connection.
type queue struct {
	mu  sync.Mutex
	all []*work
}

func (q *queue) add(w *work) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all = append(q.all, w)
}

// take removes the first updates, at most maxBatch.
func (q *queue) take() []*work {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.all), maxBatch)
	batch := slices.Clone(q.all[:n])
	q.all = slices.Delete(q.all, 0, n)
	return batch
}

// remove reports whether w was still waiting.
func (q *queue) remove(w *work) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.all, w)
	if i >= 0 {
		q.all = slices.Delete(q.all, i, i+1)
	}
	return i >= 0
}
