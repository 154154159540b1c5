// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/weft-net/weft/internal/cni"
)

// A queued DEL that failed is retried after firstRetry, then after twice the time, at most maxRetry.
const (
	firstRetry = time.Second
	maxRetry   = 5 * time.Minute
)

// attempt is the last failure of an entry.
type attempt struct {
	containerID string
	at          time.Time
	wait        time.Duration // until the next attempt
}

// failed records a failure of an entry's DEL, and returns the pause before the next attempt.
func (q *queue) failed(path, containerID string) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	wait := min(max(2*q.retries[path].wait, firstRetry), maxRetry)
	q.retries[path] = attempt{containerID: containerID, at: q.now(), wait: wait}
	return wait
}

func (q *queue) done(path string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.retries, path)
}

// due reports whether an entry is to be tried now.
func (q *queue) due(path, containerID string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	last, failed := q.retries[path]
	return !failed || containerID != "" && last.containerID == containerID || q.now().Sub(last.at) >= last.wait
}

// next returns the time until the next retry is due.
func (q *queue) next() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	wait := pollPeriod
	for _, last := range q.retries {
		wait = min(wait, last.wait-q.now().Sub(last.at))
	}
	return max(wait, 0)
}

// retriesLocked reports whether a DEL of the container has failed and is waiting.
func (q *queue) retriesLocked(containerID string) bool {
	for _, last := range q.retries {
		if last.containerID == containerID {
			return true
		}
	}
	return false
}

// forgetGone drops the retries of entries that an operator has removed.
func (q *queue) forgetGone(entries []os.DirEntry) {
	there := map[string]bool{}
	for _, e := range entries {
		there[filepath.Join(q.dir, e.Name())] = true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for path := range q.retries {
		if !there[path] {
			delete(q.retries, path)
		}
	}
}

// collectable returns the entries that a GC of a network makes unnecessary: DELs of attachments that it does not list
// as valid.
func (q *queue) collectable(call cni.Call) []string {
	valid := map[string]bool{}
	for _, k := range call.Valid {
		valid[k.ContainerID+"/"+k.IfName] = true
	}
	return q.entriesOf(func(c cni.Call) bool {
		return c.Request.Network == call.Request.Network && !valid[c.Request.ContainerID+"/"+c.Request.IfName]
	})
}

// collect removes entries after a GC that has released their attachments.
func (q *queue) collect(paths []string) {
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			q.log.Error("entry of a collected DEL could not be removed", "path", path, "err", err)
			continue
		}
		q.done(path)
		q.log.Info("queued DEL is dropped: a GC has released its attachment", "path", path)
	}
}
