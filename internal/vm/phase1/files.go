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

// records is where the records are: in the agent's ledger, or in files where there is none.
func (c Config) records() attach.Memory {
	if c.Records != nil {
		return c.Records
	}
	return files{c.Dir}
}

// files are records in a directory, a file for each machine in a pod.
type files struct{ dir string }

// path is the file of a record. A machine's key is two names of Kubernetes', which have no commas.
func (f files) path(k model.AttachmentKey) string {
	return f.stem(k.Network) + "," + word(k.ContainerID) + ".json"
}

func (f files) stem(machine string) string {
	return filepath.Join(f.dir, strings.ReplaceAll(machine, "/", ","))
}

// word is a pod's name as it can be in that of a file.
func word(pod string) string {
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
			return model.Faultf(model.CodeIO, "the directory must be writable and have room", "record of machine %s: %w",
				r.Request.Network, err)
		}
	}
	return nil
}

// Get reads a record.
func (f files) Get(k model.AttachmentKey) (attach.Record, bool, error) { return f.read(f.path(k)) }

// List reads all records; the error joins what is wrong with unreadable ones.
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

// Delete removes a record; one that is not there is no error.
func (f files) Delete(k model.AttachmentKey) error {
	if err := os.Remove(f.path(k)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record of machine %s: %w", k.Network, err)
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

// decode reads a file, also one of the form that versions before this one wrote: it had no stage.
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

// lock keeps other calls for the machine away.
func (c Config) lock(ctx context.Context, key string) (unlock func(), err error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, model.Faultf(model.CodeIO, "", "records of machines: %w", err)
	}
	path := files{c.Dir}.stem(key) + ".lock"
	f, err := flock.Open(ctx, path, flock.Exclusive, 0o600)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil, model.Faultf(model.CodeTryAgain, "another call for it is under way", "machine %s: %w", key, ctx.Err())
	}
	if err != nil {
		return nil, model.Faultf(model.CodeIO, "", "records of machines: %w", err)
	}
	c.tidy(key)
	return func() {
		_ = os.Remove(path)
		_ = f.Close()
	}, nil
}

// tidy takes away what calls for the machine left that were killed while they wrote, and what is of another boot.
func (c Config) tidy(key string) {
	_ = atomicfile.Sweep(c.Dir) // it is tried again by the next call
	paths, _ := filepath.Glob(files{c.Dir}.stem(key) + ",*.json")
	for _, path := range paths {
		if r, found, err := (files{c.Dir}).read(path); err == nil && found && r.Boot != c.Boot {
			_ = os.Remove(path)
		}
	}
}

// Adopt brings the records that an agent of an earlier version has in files to where they are kept now, and takes away
// what killed calls left beside them. A record goes before its file does: whoever is killed between the two finds it in
// both places, and what is kept already is the newer.
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
