// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/cluster/store"
)

const (
	// archiveVersion is the version of the file's format. A file of another version is not read.
	archiveVersion = 1
	// A file below smallArchive bytes is never compacted; a larger one is when it has grown by archiveGrowth since.
	smallArchive, archiveGrowth = 256 << 10, 3
	// maxLine bounds one object, in bytes.
	maxLine = 4 << 20
	// maxPending is how many bytes of lines wait uncompressed: the first list of a kind is large.
	maxPending = 1 << 20
)

// archive stores the objects of one kind in a file, for an agent that starts while the server is unavailable. Changes
// are appended, compressed, so that the pods of a cluster need no memory.
type archive struct {
	file, node string

	mu      sync.Mutex
	pending bytes.Buffer // lines not yet compressed
	packed  bytes.Buffer // compressed lines that are not yet written, before the pending ones
	// coalesced, if not nil, are pending objects by name of which only the last version is written: those that are large
	// and change often.
	coalesced map[string]archiveLine
	// torn: the file's end may be incomplete, so that nothing can be appended.
	torn    bool
	size    int64
	written int64 // the size after the last compaction
}

// archiveLine is a line: an object, the deletion of one, or the mark that all objects are above.
type archiveLine struct {
	Version int             `json:"version,omitempty"` // the first line of all
	Node    string          `json:"node,omitempty"`
	Name    string          `json:"name,omitempty"`
	Object  json.RawMessage `json:"object,omitempty"`
	Whole   bool            `json:"whole,omitempty"`
}

// newArchive returns an archive of that name in a directory; nil, which stores nothing, without one.
func newArchive(dir, node, name string) *archive {
	if dir == "" {
		return nil
	}
	return &archive{file: filepath.Join(dir, name+".gz"), node: node}
}

// exists reports whether an agent has written the archive.
func (a *archive) exists() bool {
	if a == nil {
		return false
	}
	_, err := os.Stat(a.file)
	return err == nil
}

// absentSuffix ends the name of the file that notes that the server did not have the kind.
const absentSuffix = ".absent"

// absent reports whether the server did not have the kind when an agent asked it last.
func (a *archive) absent() bool {
	if a == nil {
		return false
	}
	_, err := os.Stat(a.file + absentSuffix)
	return err == nil
}

// noteAbsent notes whether the server has not the kind, for agents that cannot ask it.
func (a *archive) noteAbsent(is bool, log *slog.Logger) {
	if a == nil || a.absent() == is {
		return
	}
	err := os.Remove(a.file + absentSuffix)
	if is {
		if err = os.MkdirAll(filepath.Dir(a.file), 0o700); err == nil {
			err = atomicfile.Write(a.file+absentSuffix, nil, 0o600, atomicfile.CrashSafe)
		}
	}
	if err != nil {
		log.Warn("it could not be noted whether the server has a kind", "file", a.file+absentSuffix, "err", err)
	}
}

// add queues a line. A nil archive stores nothing.
func (a *archive) add(line archiveLine) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.coalesced != nil && line.Name != "" {
		a.coalesced[line.Name] = line
		return
	}
	a.flushCoalescedLocked()
	a.writeLocked(line)
}

// writeLocked queues a line.
func (a *archive) writeLocked(line archiveLine) {
	if b, err := json.Marshal(line); err == nil { // it is valid JSON
		_, _ = a.pending.Write(append(b, '\n'))
	}
	if a.pending.Len() > maxPending {
		a.packLocked()
	}
}

// packLocked compresses the pending lines, as a gzip member.
func (a *archive) packLocked() {
	if a.pending.Len() == 0 {
		return
	}
	out := gzip.NewWriter(&a.packed) // a buffer accepts everything
	_, _ = out.Write(a.pending.Bytes())
	_ = out.Close()
	a.pending.Reset()
}

// flushCoalescedLocked queues the coalesced lines.
func (a *archive) flushCoalescedLocked() {
	for _, name := range slices.Sorted(maps.Keys(a.coalesced)) {
		a.writeLocked(a.coalesced[name])
	}
	clear(a.coalesced)
}

// replay passes the stored objects to notify; false if the file is incomplete. It must be called first, and holds no
// lock, because the callback may block.
func (a *archive) replay(send func(store.Object)) (bool, error) {
	if a == nil {
		return false, nil
	}
	last, whole, err := a.index()
	if err != nil || !whole {
		return false, err
	}
	if info, err := os.Stat(a.file); err == nil {
		a.mu.Lock()
		a.size, a.torn = info.Size(), true
		a.mu.Unlock()
	}
	return true, a.current(last, func(line archiveLine) error {
		if o, err := store.NewObject(line.Object); err == nil {
			send(o)
		}
		return nil
	})
}

// index returns the last line of each name, and whether the file is complete.
func (a *archive) index() (last map[string]int, whole bool, err error) {
	last = map[string]int{}
	n := 0
	err = a.lines(func(line archiveLine) error {
		if n == 0 && (line.Version != archiveVersion || line.Node != a.node) {
			return fmt.Errorf("%s: version %d of node %q", a.file, line.Version, line.Node)
		}
		if line.Name != "" {
			last[line.Name] = n
		}
		whole = whole || line.Whole
		n++
		return nil
	})
	return last, whole, err
}

// current calls f with the lines of the existing objects.
func (a *archive) current(last map[string]int, f func(archiveLine) error) error {
	n := 0
	return a.lines(func(line archiveLine) error {
		n++
		if line.Name == "" || line.Object == nil || last[line.Name] != n-1 {
			return nil
		}
		return f(line)
	})
}

// lines reads the file, up to where a killed agent stopped writing.
func (a *archive) lines(f func(archiveLine) error) error {
	in, err := os.Open(a.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	packed, err := gzip.NewReader(bufio.NewReader(in))
	if err != nil {
		return nil // it has no complete line
	}
	scan := bufio.NewScanner(packed)
	scan.Buffer(make([]byte, 64<<10), maxLine)
	for scan.Scan() {
		var line archiveLine
		if json.Unmarshal(scan.Bytes(), &line) != nil {
			return nil
		}
		if err := f(line); err != nil {
			return err
		}
	}
	return nil
}

// flush writes the queued lines, and compacts the file if most of it is outdated.
func (a *archive) flush() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flushCoalescedLocked()
	if a.packLocked(); a.packed.Len() == 0 {
		return nil
	}
	if a.size == 0 {
		return a.createFile()
	}
	if a.torn {
		if err := a.rewrite(); err != nil {
			return err
		}
	}
	out, err := os.OpenFile(a.file, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := out.Write(a.packed.Bytes())
	if err = errors.Join(err, out.Close()); err != nil {
		a.torn = true // the file's end may be incomplete; the lines are written again
		return err
	}
	a.pending, a.packed = bytes.Buffer{}, bytes.Buffer{} // release their memory
	a.size += int64(n)
	if a.size > smallArchive && a.size > archiveGrowth*a.written {
		return a.rewrite()
	}
	return nil
}

// createFile creates the file with the queued lines.
func (a *archive) createFile() error {
	err := a.replace(func(io.Writer) error { return nil }, a.packed.Bytes())
	if err == nil {
		a.pending, a.packed = bytes.Buffer{}, bytes.Buffer{}
	}
	return err
}

// rewrite compacts the file.
func (a *archive) rewrite() error {
	last, whole, err := a.index()
	if err != nil {
		return err
	}
	return a.replace(func(w io.Writer) error {
		e := json.NewEncoder(w)
		if err := a.current(last, func(line archiveLine) error { return e.Encode(line) }); err != nil {
			return err
		}
		return e.Encode(archiveLine{Whole: whole})
	}, nil)
}

// replace writes the file atomically: the lines of fill, and packed ones behind them.
func (a *archive) replace(fill func(io.Writer) error, lines []byte) error {
	err := atomicfile.WriteFrom(a.file, func(out io.Writer) error {
		packed := gzip.NewWriter(out)
		err := json.NewEncoder(packed).Encode(archiveLine{Version: archiveVersion, Node: a.node})
		if err == nil {
			err = fill(packed)
		}
		if err = errors.Join(err, packed.Close()); err == nil {
			_, err = out.Write(lines)
		}
		return err
	}, 0o600, atomicfile.CrashSafe)
	if err != nil {
		return err
	}
	info, err := os.Stat(a.file)
	if err != nil {
		return err
	}
	a.size, a.written, a.torn = info.Size(), info.Size(), false
	return nil
}
