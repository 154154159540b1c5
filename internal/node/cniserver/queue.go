// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/inotify"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

const (
	// pollPeriod is how often the directory is read without an inotify event.
	pollPeriod = 30 * time.Second
	// stale is the age at which a half-written entry has certainly lost its writer.
	stale = time.Minute
	// coarse is the resolution of a directory's modification time: two changes within it may have the same time.
	coarse = 20 * time.Millisecond
	// maxEntry limits an entry's size in bytes.
	maxEntry = wire.RequestHeader + wire.MaxEnv + wire.MaxConf
)

// queue is the directory of the DELs that weft-cni could not forward.
type queue struct {
	dir     string
	log     *slog.Logger
	replay  func(context.Context, wire.Request) error
	now     func() time.Time // the clock of retries
	fail    failpoint.Hook
	events  notify.Chan // notified when an entry was added, and at the start
	unwatch func()

	replaying sync.Mutex // locked during replayAll

	mu      sync.Mutex
	seen    unix.Timespec      // modification time of the directory before the last replay that all its entries have had
	retries map[string]attempt // the entries whose DEL failed, by path
}

func openQueue(
	dir string, added *inotify.Instance, log *slog.Logger, now func() time.Time,
	replay func(context.Context, wire.Request) error,
) (*queue, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("queue %s: %w", dir, err)
	}
	q := &queue{
		dir: dir, log: log, now: now, replay: replay, events: notify.New(), retries: map[string]attempt{},
	}
	var err error
	if q.unwatch, err = added.Watch(dir, unix.IN_MOVED_TO, func(string) { q.events.Notify() }); err != nil {
		log.Warn("the queue of DELs is read periodically only", "path", dir, "err", err)
	}
	q.events.Notify()
	return q, nil
}

// run does the entries in the directory and new ones, until ctx ends.
func (q *queue) run(ctx context.Context) {
	defer q.unwatch()
	t := time.NewTimer(pollPeriod)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.events:
		case <-t.C:
		}
		q.replayAll(ctx, "")
		t.Reset(q.next())
	}
}

// drainFor replays the queued DELs of a container before an ADD of it: the DEL of an earlier attachment must not follow
// the ADD. If the directory has not changed since the last replay it costs one system call, and the DELs of other
// containers are not waited for. An error reports that the DEL of the same attachment is still queued: it would delete
// the new one.
func (q *queue) drainFor(ctx context.Context, r model.Request) error {
	changed := q.changed()
	q.mu.Lock()
	same := changed != unix.Timespec{} && changed == q.seen && !q.retriesLocked(r.ContainerID)
	q.mu.Unlock()
	if same || q.empty(changed) || len(q.entriesOf(func(c cni.Call) bool { return c.Request.ContainerID == r.ContainerID })) == 0 {
		return nil
	}
	q.replayAll(ctx, r.ContainerID)
	left := q.entriesOf(func(c cni.Call) bool { return c.Request.Key() == r.Key() })
	if len(left) == 0 {
		return nil
	}
	return model.Errorf(model.CodeTryAgain, "see the agent's log; `weft doctor` lists the queue",
		"the DEL of the previous attachment is queued and failed: %s", left[0])
}

// empty reports whether the directory has no entries. They were none at the time changed, or have come since.
func (q *queue) empty(changed unix.Timespec) bool {
	entries, err := os.ReadDir(q.dir)
	if err != nil || len(entries) > 0 {
		return false
	}
	q.mu.Lock()
	q.seen = changed
	q.mu.Unlock()
	return true
}

// changed returns the directory's modification time; zero if it is so recent that a further change might have the same
// time.
func (q *queue) changed() unix.Timespec {
	var st unix.Stat_t
	if unix.Stat(q.dir, &st) != nil || time.Since(time.Unix(st.Mtim.Unix())) < coarse {
		return unix.Timespec{}
	}
	return st.Mtim
}

// length returns the number of entries, without those that are half-written or put aside.
func (q *queue) length() int {
	entries, err := os.ReadDir(q.dir)
	if err != nil {
		return 0
	}
	n := 0
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), wire.QueueSuffix) {
			n++
		}
	}
	return n
}

// entriesOf returns the paths of the readable entries that match.
func (q *queue) entriesOf(fits func(cni.Call) bool) []string {
	entries, err := os.ReadDir(q.dir)
	if err != nil {
		return nil
	}
	var paths []string
	for _, e := range entries {
		path := filepath.Join(q.dir, e.Name())
		if !strings.HasSuffix(e.Name(), wire.QueueSuffix) {
			continue
		}
		r, err := readEntry(path)
		if err != nil {
			continue
		}
		if c, _ := parseCall(r); fits(c) {
			paths = append(paths, path)
		}
	}
	return paths
}

// replayAll replays the entries in the order in which they were written, except those whose retry is not due. Those of
// the container now are always due.
func (q *queue) replayAll(ctx context.Context, now string) {
	q.replaying.Lock()
	defer q.replaying.Unlock()
	changed := q.changed()
	entries, err := os.ReadDir(q.dir) // sorted by name, which is by time
	if err != nil {
		q.log.Error("queue directory could not be read", "path", q.dir, "err", err)
		return
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return
		}
		path := filepath.Join(q.dir, e.Name())
		switch name := e.Name(); {
		case strings.HasPrefix(name, wire.TempPrefix):
			q.removeStaleTemp(path)
		case strings.HasSuffix(name, wire.QueueSuffix):
			if q.due(path, now) {
				q.replayEntry(ctx, path)
			}
		}
	}
	q.forgetGone(entries)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.seen = changed // not before: an ADD would overtake an entry that comes later in this replay
}

// removeStaleTemp removes the half-written entry of a killed weft-cni; its caller got no success.
func (q *queue) removeStaleTemp(path string) {
	if st, err := os.Stat(path); err == nil && time.Since(st.ModTime()) > stale {
		_ = os.Remove(path)
	}
}

// replayEntry replays one entry. It is removed only when its DEL is done; an unreadable one is renamed.
func (q *queue) replayEntry(ctx context.Context, path string) {
	r, err := readEntry(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case unreadable(err):
		bad := path + wire.BadSuffix
		q.log.Error("queued DEL is unreadable, and its entry is renamed", "path", bad, "err", errors.Join(err, os.Rename(path, bad)))
		return
	case err == nil:
		err = q.finish(ctx, path, r)
	}
	if err != nil {
		wait := q.failed(path, r.Getenv("CNI_CONTAINERID"))
		q.log.Warn("queued DEL failed, and the agent retries", "path", path, "retry", wait, "err", err)
		return
	}
	q.done(path)
	q.log.Info("queued DEL is done", "container", short(r.Getenv("CNI_CONTAINERID")), "interface", r.Getenv("CNI_IFNAME"))
}

// finish does an entry's DEL and removes the entry. An entry that cannot be removed counts as failed: its DEL will be
// repeated, so that an ADD of the same attachment must wait for it.
func (q *queue) finish(ctx context.Context, path string, r wire.Request) error {
	if err := q.fail.At("before queued DEL"); err != nil {
		return err
	}
	if err := q.replay(ctx, r); err != nil {
		return err
	}
	if err := q.fail.At("before the entry goes"); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the DEL is done, but its entry could not be removed: %w", err)
	}
	return q.fail.At("after the entry went")
}

// errNoDel is the error of an entry with another verb.
var errNoDel = errors.New("the entry is not a DEL")

// readEntry reads a queued DEL.
func readEntry(path string) (wire.Request, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return wire.Request{}, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxEntry {
		return wire.Request{}, errNoDel
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return wire.Request{}, err
	}
	r, err := wire.ParseRequest(b)
	if err != nil {
		return r, err
	}
	if c, err := cni.ParseCall(r.Getenv, r.Stdin()); c.Command != cni.Del || c.Conf == nil {
		return r, errors.Join(errNoDel, err)
	}
	return r, nil
}

// unreadable reports whether an agent can do nothing with an entry, now or later. An entry of another version of the
// protocol is not unreadable: it waits for an agent of that version. Neither is one whose DEL failed, whatever the
// code: it may be a plugin's own, and a missing program is often back soon.
func unreadable(err error) bool {
	var frame wire.Error
	return errors.Is(err, errNoDel) || errors.As(err, &frame) && frame != wire.ErrVersion
}
