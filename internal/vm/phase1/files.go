// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/flock"
	"github.com/weft-net/weft/internal/model"
)

// records returns the record store: the agent's ledger, or files.
func (c Config) records() attach.RecordStore {
	if c.Records != nil {
		return c.Records
	}
	return files{c.Dir}
}

// files is a RecordStore in a directory, with one file for each VM in a pod.
type files struct{ dir string }

// path returns the file of a record. A VM's key consists of two Kubernetes names, which have no commas.
func (f files) path(k model.AttachmentKey) string {
	return f.stem(k.Network) + "," + fileName(k.ContainerID) + ".json"
}

func (f files) stem(vm string) string {
	return filepath.Join(f.dir, strings.ReplaceAll(vm, "/", ","))
}

// fileName returns a pod's name if it can be part of a file's name, else its hash.
func fileName(pod string) string {
	const most = 64
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_'
	}
	if len(pod) <= most && !strings.ContainsFunc(pod, func(r rune) bool { return !plain(r) }) {
		return pod
	}
	sum := sha256.Sum256([]byte(pod))
	return hex.EncodeToString(sum[:])
}

// Put writes records, one by one.
func (f files) Put(records ...attach.Record) error {
	for _, r := range records {
		b, err := attach.Encode(r)
		if err != nil {
			return err
		}
		if err := atomicfile.Write(f.path(r.Key()), b, 0o600, atomicfile.CrashSafe); err != nil {
			return model.Errorf(model.CodeIO, "the directory must be writable and have free space", "record of VM %s: %w",
				r.Request.Network, err)
		}
	}
	return nil
}

// SetStage writes records in another stage, one by one.
func (f files) SetStage(stage attach.Stage, records ...attach.Record) error {
	for _, r := range records {
		r.Stage = stage
		if err := f.Put(r); err != nil {
			return err
		}
	}
	return nil
}

// Get reads a record.
func (f files) Get(k model.AttachmentKey) (attach.Record, bool, error) { return f.read(f.path(k)) }

// List reads all records; the error joins those of the unreadable ones.
func (f files) List() ([]attach.Record, error) {
	paths, err := f.all()
	errs := []error{err}
	var out []attach.Record
	for _, path := range paths {
		r, found, err := f.read(path)
		if errs = append(errs, err); found && err == nil {
			out = append(out, r)
		}
	}
	return out, errors.Join(errs...)
}

// Delete removes a record; a missing one is no error.
func (f files) Delete(k model.AttachmentKey) error {
	if err := os.Remove(f.path(k)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record of VM %s: %w", k.Network, err)
	}
	return nil
}

func (f files) all() ([]string, error) { return filepath.Glob(filepath.Join(f.dir, "*.json")) }

func (f files) read(path string) (r attach.Record, found bool, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return attach.Record{}, false, nil
	}
	if err == nil {
		r, err = decode("record "+path, b)
	} else {
		err = fmt.Errorf("record %s: %w", path, err)
	}
	return r, err == nil, err
}

// decode decodes a file, also one of the format without a stage that earlier versions wrote.
func decode(where string, b []byte) (attach.Record, error) {
	var form struct {
		Version int          `json:"version"`
		Stage   attach.Stage `json:"stage"`
	}
	const before = 1
	if err := json.Unmarshal(b, &form); err != nil || form.Stage != "" || form.Version > before {
		return attach.Decode(where, b)
	}
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return attach.Record{}, fmt.Errorf("%s: %w", where, err)
	}
	return r.stored(), nil
}

// lock excludes other calls for the VM.
func (c Config) lock(ctx context.Context, key string) (unlock func(), err error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, model.Errorf(model.CodeIO, "", "records of VMs: %w", err)
	}
	path := files{c.Dir}.stem(key) + ".lock"
	f, err := flock.Open(ctx, path, flock.Exclusive, 0o600)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil, model.Errorf(model.CodeTryAgain, "another call for this VM is running", "VM %s: %w", key, ctx.Err())
	}
	if err != nil {
		return nil, model.Errorf(model.CodeIO, "", "records of VMs: %w", err)
	}
	c.tidy(key)
	return func() {
		_ = os.Remove(path)
		_ = f.Close()
	}, nil
}

// tidy removes temporary files of killed calls, and the VM's records of other boots.
func (c Config) tidy(key string) {
	_ = atomicfile.Sweep(c.Dir) // the next call tries again
	paths, _ := filepath.Glob(files{c.Dir}.stem(key) + ",*.json")
	for _, path := range paths {
		if r, found, err := (files{c.Dir}).read(path); err == nil && found && r.Boot != c.Boot {
			_ = os.Remove(path)
		}
	}
}

// Adopt moves records that an agent of an earlier version left in files to the record store, and removes what killed
// calls left. It stores a record before it deletes the file: if the agent is killed in between, both exist, and the
// stored one is newer.
func (c Config) Adopt(ctx context.Context) error {
	old := files{c.Dir}
	paths, err := old.all()
	errs := []error{err}
	for _, path := range paths {
		errs = append(errs, c.adopt(path))
	}
	locks, err := filepath.Glob(filepath.Join(c.Dir, "*.lock"))
	errs = append(errs, err)
	for _, path := range locks {
		key := strings.Replace(strings.TrimSuffix(filepath.Base(path), ".lock"), ",", "/", 1)
		unlock, err := c.lock(ctx, key)
		if errs = append(errs, err); err == nil {
			unlock()
		}
	}
	return errors.Join(errs...)
}

func (c Config) adopt(path string) error {
	r, found, err := files{c.Dir}.read(path)
	if err != nil || !found {
		return err
	}
	if r.Boot == c.Boot {
		_, known, err := c.records().Get(r.Key())
		if err == nil && !known {
			err = c.records().Put(r)
		}
		if err == nil {
			err = c.Step.At("adopted")
		}
		if err != nil {
			return err
		}
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("record %s: %w", path, err)
	}
	return nil
}
