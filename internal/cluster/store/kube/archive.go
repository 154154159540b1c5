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
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/cluster/store"
)

const (
	// archiveVersion is that of the file's form. One of another version is not read.
	archiveVersion = 1
	// smallArchive is never written anew; a larger one is when it is this many times what it was then, in bytes.
	smallArchive, archiveGrowth = 256 << 10, 3
	// mostLine bounds one object, in bytes.
	mostLine = 4 << 20
)

// archive is what was told of one kind, as a file, for an agent that starts while the server is away: changes are added
// to its end, packed, so that all pods of a cluster need no place in memory for it.
type archive struct {
	file, node string

	mu      sync.Mutex
	pending bytes.Buffer // lines not yet written
	// late, where it is not nil, are objects of which the last word is written alone, by their names: those that are large
	// and change all the time.
	late map[string]archived
	// torn: the file's end may be half a piece, behind which nothing would be found.
	torn    bool
	size    int64
	written int64 // what the size was when the file was written anew
}

// archived is a line: what an object is, that there is none of the name, or that everything was told up to here.
type archived struct {
	Version int             `json:"version,omitempty"` // the first line of all
	Node    string          `json:"node,omitempty"`
	Name    string          `json:"name,omitempty"`
	Object  json.RawMessage `json:"object,omitempty"`
	Whole   bool            `json:"whole,omitempty"`
}

func newArchive(dir, node string, kind store.Kind) *archive {
	if dir == "" {
		return nil
	}
	return &archive{file: filepath.Join(dir, "policy-"+kind.Resource+".gz"), node: node}
}

// add notes what is to be written. The nil archive keeps nothing.
func (a *archive) add(line archived) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.late != nil && line.Name != "" {
		a.late[line.Name] = line
		return
	}
	a.settle()
	a.write(line)
}

// write adds a line to what is to be written. The lock is held.
func (a *archive) write(line archived) {
	if b, err := json.Marshal(line); err == nil { // it was JSON already
		_, _ = a.pending.Write(append(b, '\n'))
	}
}

// settle makes lines of the last words. The lock is held.
func (a *archive) settle() {
	for _, name := range slices.Sorted(maps.Keys(a.late)) {
		a.write(a.late[name])
	}
	clear(a.late)
}

// replay tells the objects that the file knows; false when it does not know everything that was there once. It comes
// before everything else, and holds no lock: whoever is told may be slow.
func (a *archive) replay(tell func(store.Object)) (bool, error) {
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
	return true, a.live(last, func(line archived) error {
		if o, err := store.NewObject(line.Object); err == nil {
			tell(o)
		}
		return nil
	})
}

// index finds the last line of each name, and whether everything was told.
func (a *archive) index() (last map[string]int, whole bool, err error) {
	last = map[string]int{}
	n := 0
	err = a.lines(func(line archived) error {
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

// live hands on the lines of the objects that there are.
func (a *archive) live(last map[string]int, f func(archived) error) error {
	n := 0
	return a.lines(func(line archived) error {
		n++
		if line.Name == "" || line.Object == nil || last[line.Name] != n-1 {
			return nil
		}
		return f(line)
	})
}

// lines reads the file, up to where a killed agent stopped writing.
func (a *archive) lines(f func(archived) error) error {
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
		return nil // nothing whole is in it
	}
	scan := bufio.NewScanner(packed)
	scan.Buffer(make([]byte, 64<<10), mostLine)
	for scan.Scan() {
		var line archived
		if json.Unmarshal(scan.Bytes(), &line) != nil {
			return nil
		}
		if err := f(line); err != nil {
			return err
		}
	}
	return nil
}

// flush writes what is pending, and the file anew when most of it is old.
func (a *archive) flush() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.settle(); a.pending.Len() == 0 {
		return nil
	}
	if a.size == 0 {
		return a.begin()
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
	n, err := pack(out, a.pending.Bytes())
	if err = errors.Join(err, out.Close()); err != nil {
		a.torn = true // half a piece may be there; the lines are written again
		return err
	}
	a.pending = bytes.Buffer{} // its room, too: the first list of a kind is large
	a.size += n
	if a.size > smallArchive && a.size > archiveGrowth*a.written {
		return a.rewrite()
	}
	return nil
}

// begin makes the file of what is pending.
func (a *archive) begin() error {
	err := a.replace(func(w io.Writer) error { _, err := w.Write(a.pending.Bytes()); return err })
	if err == nil {
		a.pending = bytes.Buffer{}
	}
	return err
}

// rewrite leaves out what is old.
func (a *archive) rewrite() error {
	last, whole, err := a.index()
	if err != nil {
		return err
	}
	return a.replace(func(w io.Writer) error {
		e := json.NewEncoder(w)
		if err := a.live(last, func(line archived) error { return e.Encode(line) }); err != nil {
			return err
		}
		return e.Encode(archived{Whole: whole})
	})
}

// replace puts a whole file in place.
func (a *archive) replace(fill func(io.Writer) error) error {
	err := atomicfile.WriteFrom(a.file, func(out io.Writer) error {
		packed := gzip.NewWriter(out)
		err := json.NewEncoder(packed).Encode(archived{Version: archiveVersion, Node: a.node})
		if err == nil {
			err = fill(packed)
		}
		return errors.Join(err, packed.Close())
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

// pack writes what is pending as one packed piece, and tells how long that is.
func pack(out *os.File, pending []byte) (int64, error) {
	var piece bytes.Buffer
	packed := gzip.NewWriter(&piece)
	_, err := packed.Write(pending)
	if err = errors.Join(err, packed.Close()); err != nil {
		return 0, err
	}
	n, err := piece.WriteTo(out)
	return n, err
}
