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
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

const (
	// look is how often the directory is read when nothing tells of a change.
	look = 30 * time.Second
	// stale is the age at which a half-written entry has certainly lost its writer.
	stale = time.Minute
	// coarse is a time in which a directory may change twice and show one time of change.
	coarse = 20 * time.Millisecond
	// maxEntry bounds an entry's size.
	maxEntry = wire.RequestHeader + wire.MaxEnv + wire.MaxConf
)

// queue is the directory of the DELs that weft-cni could not hand over.
type queue struct {
	dir     string
	log     *slog.Logger
	replay  func(context.Context, wire.Request) error
	now     func() time.Time // between the tries of what failed
	inotify *os.File

	passing sync.Mutex // held for as long as the DELs of a pass take

	mu      sync.Mutex
	seen    unix.Timespec      // when the directory had last changed before it was last read
	retries map[string]attempt // the entries whose DEL failed, by path
}

func openQueue(
	dir string, log *slog.Logger, now func() time.Time, replay func(context.Context, wire.Request) error,
) (*queue, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("queue %s: %w", dir, err)
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("queue %s: inotify: %w", dir, err)
	}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MOVED_TO|unix.IN_ONLYDIR); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("queue %s: inotify: %w", dir, err)
	}
	return &queue{
		dir: dir, log: log, now: now, replay: replay, inotify: os.NewFile(uintptr(fd), "inotify"),
		retries: map[string]attempt{},
	}, nil
}

func (q *queue) close() error { return q.inotify.Close() }

// run does what is in the directory and what comes into it, until ctx ends.
func (q *queue) run(ctx context.Context) {
	news := notify.New()
	news.Notify()
	go q.listen(ctx, news)
	t := time.NewTimer(look)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			_ = q.inotify.SetReadDeadline(time.Now())
			for range news { // until listen has closed it
			}
			return
		case <-news:
		case <-t.C:
		}
		q.pass(ctx, "")
		t.Reset(q.next())
	}
}

// listen turns the kernel's notes into news; it closes news when ctx has ended.
func (q *queue) listen(ctx context.Context, news notify.Chan) {
	defer close(news)
	buf := make([]byte, 4096)
	for ctx.Err() == nil {
		if _, err := q.inotify.Read(buf); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				q.log.Error("the queue is looked at only now and then", "dir", q.dir, "err", err)
				<-ctx.Done()
			}
			return
		}
		news.Notify()
	}
}

// settle does the queued DELs of a container before an ADD of it: an ADD must not be overtaken by the DEL of what was
// there before. Where nothing came since the last pass it is one system call, and the DELs of other containers are not
// waited for. An error says that the DEL of the very attachment still waits: it would take away what the ADD makes.
func (q *queue) settle(ctx context.Context, r model.Request) error {
	changed := q.changed()
	q.mu.Lock()
	same := changed != unix.Timespec{} && changed == q.seen && !q.retriesLocked(r.ContainerID)
	q.mu.Unlock()
	if same || len(q.entriesOf(func(c cni.Call) bool { return c.Request.ContainerID == r.ContainerID })) == 0 {
		return nil
	}
	q.pass(ctx, r.ContainerID)
	left := q.entriesOf(func(c cni.Call) bool { return c.Request.Key() == r.Key() })
	if len(left) == 0 {
		return nil
	}
	return model.Faultf(model.CodeTryAgain, "the agent's log says why; `weft doctor` lists the queue",
		"the DEL of the attachment before this one is queued and cannot be done yet: %s", left[0])
}

// changed is when the directory has last changed; zero when that says nothing, because it is so young that a further
// change might show the same time.
func (q *queue) changed() unix.Timespec {
	var st unix.Stat_t
	if unix.Stat(q.dir, &st) != nil || time.Since(time.Unix(st.Mtim.Unix())) < coarse {
		return unix.Timespec{}
	}
	return st.Mtim
}

// entriesOf gives the paths of the entries that can be read and that fit.
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

// pass does every entry in the order in which they were written, but those that failed and are not due yet. Those of
// the container now are always due.
func (q *queue) pass(ctx context.Context, now string) {
	q.passing.Lock()
	defer q.passing.Unlock()
	changed := q.changed()
	q.mu.Lock()
	q.seen = changed
	q.mu.Unlock()
	entries, err := os.ReadDir(q.dir) // sorted by name, which is by time
	if err != nil {
		q.log.Error("the queue can not be read", "dir", q.dir, "err", err)
		return
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return
		}
		path := filepath.Join(q.dir, e.Name())
		switch name := e.Name(); {
		case strings.HasPrefix(name, wire.TempPrefix):
			q.sweep(path)
		case strings.HasSuffix(name, wire.QueueSuffix):
			if q.due(path, now) {
				q.do(ctx, path)
			}
		}
	}
	q.forgetGone(entries)
}

// sweep removes what a killed weft-cni left half-written; its caller was not told that the DEL is done.
func (q *queue) sweep(path string) {
	if st, err := os.Stat(path); err == nil && time.Since(st.ModTime()) > stale {
		_ = os.Remove(path)
	}
}

// do does one entry. It is removed only when its DEL is done; one that cannot be read is put aside.
func (q *queue) do(ctx context.Context, path string) {
	r, err := readEntry(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case unreadable(err):
		bad := path + wire.BadSuffix
		q.log.Error("queued DEL cannot be read, put aside", "path", bad, "err", errors.Join(err, os.Rename(path, bad)))
		return
	case err == nil:
		err = q.replay(ctx, r)
	}
	if err != nil {
		wait := q.failed(path, r.Getenv("CNI_CONTAINERID"))
		q.log.Warn("queued DEL failed, the agent retries", "path", path, "retry", wait, "err", err)
		return
	}
	q.done(path)
	if err := os.Remove(path); err != nil {
		q.log.Error("queued DEL is done, but its entry stays", "path", path, "err", err)
		return
	}
	q.log.Info("queued DEL done", "id", short(r.Getenv("CNI_CONTAINERID")), "ifname", r.Getenv("CNI_IFNAME"))
}

// errNoDel is why an entry is put aside that holds another verb.
var errNoDel = errors.New("the entry is no DEL")

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

// unreadable reports whether an entry says nothing that an agent could do, now or later. One of another version of the
// protocol is not: it waits for an agent of that version. Neither is one whose DEL failed, whatever the error's code: a
// code may be a plugin's own, and a program that is missing is often back soon.
func unreadable(err error) bool {
	var frame wire.Error
	return errors.Is(err, errNoDel) || errors.As(err, &frame) && frame != wire.ErrVersion
}
