// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"context"
	"os"
	"sync"

	"github.com/weft-net/weft/internal/inotify"
	"github.com/weft-net/weft/internal/notify"
	"golang.org/x/sys/unix"
)

// events are what can change a manifest, or whether it can be read.
const events = unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF

// notifier knows which files of a directory have changed. The kernel queues an event before the system call that changes
// a file returns, so that what it has not reported has not changed. A nil notifier knows nothing.
type notifier struct {
	queue  *inotify.Instance
	cancel context.CancelFunc
	done   chan struct{} // closed at the end
	path   string

	mu     sync.Mutex
	names  map[string]bool // changed since the last call of changes
	unsure bool            // others may have changed, too
	wake   map[*watch]notify.Chan
	// dir is the directory that is watched: another one may have its path by now. nil: none is.
	dir os.FileInfo
	// local: all changes of the directory's files are reported.
	local bool
	// remove ends the watch; only changes calls it.
	remove func()
}

// newNotifier returns a notifier of a directory, nil if the kernel has none. Close must be called.
func newNotifier(path string) *notifier {
	queue, err := inotify.New()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &notifier{
		queue: queue, cancel: cancel, done: make(chan struct{}), path: path, names: map[string]bool{}, unsure: true,
		wake: map[*watch]notify.Chan{}, remove: func() {},
	}
	go func() {
		defer close(n.done)
		_ = queue.Run(ctx) // after an error nothing is reported: Drain fails, too
	}()
	return n
}

func (n *notifier) close() {
	n.cancel()
	<-n.done
}

// changes returns the manifests that changed since the last call. known is false if others may have changed, too.
func (n *notifier) changes(path string) (names map[string]bool, known bool) {
	if n == nil {
		return nil, false
	}
	watched := n.follow(path)
	drained := n.queue.Drain() == nil
	n.mu.Lock()
	defer n.mu.Unlock()
	names, known = n.names, watched && drained && !n.unsure
	n.names, n.unsure = map[string]bool{}, !watched
	return names, known
}

// missed has the next call of changes report that all files may have changed.
func (n *notifier) missed() {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unsure = true
}

// follow watches the directory that has the path now, and reports whether it sees each change of it.
func (n *notifier) follow(path string) bool {
	info, err := os.Stat(path)
	n.mu.Lock()
	same, local := err == nil && n.dir != nil && os.SameFile(info, n.dir), n.local
	n.mu.Unlock()
	if same {
		return local
	}
	n.remove()
	n.remove, local = func() {}, isLocal(path)
	if err == nil {
		var remove func()
		if remove, err = n.queue.Watch(path, events, n.changed); err == nil {
			n.remove = remove
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unsure, n.local = true, local
	if n.dir = info; err != nil {
		n.dir = nil
	}
	return n.dir != nil && n.local
}

// changed receives an event.
func (n *notifier) changed(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case name == "":
		n.unsure, n.dir = true, nil
	case isManifest(name):
		n.names[name] = true
	default:
		return
	}
	for _, wake := range n.wake {
		wake.Notify()
	}
}

// isLocal reports whether a directory's files can only be changed through this kernel.
func isLocal(path string) bool {
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) != nil {
		return false
	}
	switch int64(fs.Type) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC,
		unix.FUSE_SUPER_MAGIC, unix.V9FS_MAGIC, unix.CEPH_SUPER_MAGIC, unix.AFS_SUPER_MAGIC, unix.CODA_SUPER_MAGIC:
		return false
	}
	return true
}

// subscribe has a watch notified of changes.
func (n *notifier) subscribe(w *watch, wake notify.Chan) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wake[w] = wake
}

// unsubscribe ends that, and reports whether no watch is left.
func (n *notifier) unsubscribe(w *watch) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.wake, w)
	return len(n.wake) == 0
}
