// SPDX-License-Identifier: Apache-2.0

// Package journal stores the records of attachments of a standalone plugin: one file per attachment, written
// atomically. Unfinished attachments are in the folder "pending" and are undone by the next call for that network; the
// folder "done" holds what DEL needs.
//
//	DIR/TYPE/pending/NETWORK,CONTAINER,INTERFACE.json
//	DIR/TYPE/done/…
//	DIR/locks/…                     one lock file for each container with a call in progress, and the record being written
//
// All unfinished records are under pending, so a call with nothing to undo reads one small folder.
package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
)

const (
	pending = "pending"
	done    = "done"
	suffix  = ".json"
)

// Journal is the journal of one plugin type.
type Journal struct {
	dir   string // DIR/TYPE
	locks string
}

// Open opens or creates the journal of a plugin type below dir.
func Open(dir, pluginType string) (*Journal, error) {
	j := &Journal{dir: filepath.Join(dir, pluginType), locks: filepath.Join(dir, "locks")}
	for _, d := range []string{filepath.Join(j.dir, pending), filepath.Join(j.dir, done), j.locks} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, unusable(dir, err)
		}
	}
	return j, nil
}

func unusable(dir string, err error) error {
	return model.Errorf(model.CodeIO, "set WEFT_JOURNAL_DIR to a writable directory with free space",
		"journal directory %q: %w", dir, err)
}

// Put writes records one by one; the caller holds the container's lock.
func (j *Journal) Put(records ...attach.Record) error {
	for _, r := range records {
		if err := j.put(r); err != nil {
			return err
		}
	}
	return nil
}

// SetStage writes records in another stage, one by one; the caller holds the container's lock.
func (j *Journal) SetStage(stage attach.Stage, records ...attach.Record) error {
	for _, r := range records {
		r.Stage = stage
		if err := j.put(r); err != nil {
			return err
		}
	}
	return nil
}

// put writes a record. A finished one moves to done. One that is being released is only renamed back, so that DEL works
// on a full disk.
func (j *Journal) put(r attach.Record) error {
	key := r.Key()
	if r.Stage == attach.Releasing && os.Rename(j.path(done, key), j.path(pending, key)) == nil {
		return nil
	}
	b, err := attach.Encode(r)
	if err != nil {
		return err
	}
	folder := pending
	if r.Stage == attach.Done {
		folder = done
	}
	for _, f := range []string{pending, done} {
		if err := j.checkOld(f, key); err != nil {
			return err
		}
	}
	// The temporary file is next to the container's lock file and is removed with it if this process is killed.
	if err := atomicfile.WriteVia(j.lockPath(key.ContainerID)+draft, j.path(folder, key), b, 0o600,
		atomicfile.CrashSafe); err != nil {
		return unusable(filepath.Dir(j.dir), err)
	}
	if folder == done {
		return j.remove(pending, key)
	}
	return nil
}

func (j *Journal) checkOld(folder string, key model.AttachmentKey) error {
	b, err := os.ReadFile(j.path(folder, key))
	if err != nil {
		return nil // Nothing to lose.
	}
	return attach.CheckStored(j.path(folder, key), b)
}

// Get reads a record. Its folder decides whether it is unfinished or done, not its content.
func (j *Journal) Get(key model.AttachmentKey) (attach.Record, bool, error) {
	for _, folder := range []string{pending, done} {
		r, found, err := j.read(folder, j.path(folder, key))
		if err != nil || found {
			return r, found, err
		}
	}
	return attach.Record{}, false, nil
}

func (j *Journal) read(folder, path string) (attach.Record, bool, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return attach.Record{}, false, nil
	}
	if err != nil {
		return attach.Record{}, false, unusable(filepath.Dir(j.dir), err)
	}
	r, err := attach.Decode(path, b)
	if err != nil {
		return attach.Record{}, false, err
	}
	switch {
	case folder == done:
		r.Stage = attach.Done
	case r.Stage == attach.Done:
		r.Stage = attach.Releasing
	}
	return r, true, nil
}

// List reads all records. The error joins those of unreadable ones.
func (j *Journal) List() ([]attach.Record, error) {
	return j.listAll(func(string) bool { return true })
}

// Find reads the records of a container's interface, whatever their networks.
func (j *Journal) Find(containerID, ifName string) ([]attach.Record, error) {
	all, err := j.listAll(func(name string) bool {
		return strings.HasSuffix(name, ","+containerID+","+ifName+suffix) || strings.HasPrefix(name, hashed)
	})
	return slices.DeleteFunc(all, func(r attach.Record) bool {
		return r.Request.ContainerID != containerID || r.Request.IfName != ifName
	}), err
}

// Unfinished reads the unfinished records of a network: of calls in progress, and of killed ones. An empty name means
// any network.
func (j *Journal) Unfinished(network string) ([]attach.Record, error) {
	all, err := j.list(pending, func(name string) bool {
		return network == "" || strings.HasPrefix(name, network+",") || strings.HasPrefix(name, hashed)
	})
	return slices.DeleteFunc(all, func(r attach.Record) bool { return network != "" && r.Request.Network != network }), err
}

// listAll reads both folders. A record in both is unfinished.
func (j *Journal) listAll(maybe func(name string) bool) ([]attach.Record, error) {
	first, err1 := j.list(pending, maybe)
	rest, err2 := j.list(done, maybe)
	seen := map[model.AttachmentKey]bool{}
	for _, r := range first {
		seen[r.Key()] = true
	}
	for _, r := range rest {
		if !seen[r.Key()] {
			first = append(first, r)
		}
	}
	return first, errors.Join(err1, err2)
}

// list reads the records of a folder whose file name matches.
func (j *Journal) list(folder string, maybe func(name string) bool) ([]attach.Record, error) {
	entries, err := os.ReadDir(filepath.Join(j.dir, folder))
	if err != nil {
		return nil, unusable(filepath.Dir(j.dir), err)
	}
	var out []attach.Record
	var bad []error
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) || !maybe(e.Name()) {
			continue
		}
		r, found, err := j.read(folder, filepath.Join(j.dir, folder, e.Name()))
		if err != nil {
			bad = append(bad, err)
		}
		if found {
			out = append(out, r)
		}
	}
	return out, errors.Join(bad...)
}

// Delete removes a record, unless a newer program wrote it.
func (j *Journal) Delete(key model.AttachmentKey) error {
	return errors.Join(j.remove(pending, key), j.remove(done, key))
}

func (j *Journal) remove(folder string, key model.AttachmentKey) error {
	if err := j.checkOld(folder, key); err != nil {
		return err
	}
	if err := os.Remove(j.path(folder, key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unusable(filepath.Dir(j.dir), err)
	}
	return nil
}

const hashed = "sha256-"

// path returns a record's file. Names of networks and container ids contain no comma; a name that is too long is
// hashed.
func (j *Journal) path(folder string, k model.AttachmentKey) string {
	name := k.Network + "," + k.ContainerID + "," + k.IfName
	const most = 200 // of 255
	if len(name) > most {
		sum := sha256.Sum256([]byte(name))
		name = hashed + hex.EncodeToString(sum[:])
	}
	return filepath.Join(j.dir, folder, name+suffix)
}
