// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/flock"
	"github.com/weft-net/weft/internal/model"
)

const (
	suffix = ".json"
	// claimTime is how long the lock of a killed process is waited for.
	claimTime = 2 * time.Second
)

// claim locks the directory for this process.
func claim(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, model.Errorf(model.CodeIO, "choose a directory that can be written",
			"directory of leases %q: %w", dir, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), claimTime)
	defer cancel()
	f, err := flock.Open(ctx, filepath.Join(dir, "lock"), flock.Exclusive, 0o600)
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, context.DeadlineExceeded):
		return nil, model.Errorf(model.CodeExists, "stop the other one, or choose another directory",
			"directory of leases %q: another process keeps it: %w", dir, err)
	}
	return nil, model.Errorf(model.CodeIO, "choose a directory that can be written",
		"directory of leases %q: %w", dir, err)
}

func (k *Manager) path(key model.AttachmentKey) string {
	sum := sha256.Sum256([]byte(key.String()))
	return filepath.Join(k.cfg.Dir, hex.EncodeToString(sum[:16])+suffix)
}

// save writes a record atomically.
func (k *Manager) save(rec record) error {
	if err := k.cfg.Failpoint.At("before save"); err != nil {
		return err
	}
	b, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("lease of %s: %w", rec.key(), err)
	}
	if err := atomicfile.Write(k.path(rec.key()), b, 0o600, atomicfile.CrashSafe); err != nil {
		return model.Errorf(model.CodeIO, "make room where leases are kept", "lease of %s: %w", rec.key(), err)
	}
	return k.cfg.Failpoint.At("after save")
}

func (k *Manager) forget(key model.AttachmentKey) error {
	if err := k.cfg.Failpoint.At("before forget"); err != nil {
		return err
	}
	if err := os.Remove(k.path(key)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return model.Errorf(model.CodeIO, "", "lease of %s: %w", key, err)
	}
	return k.cfg.Failpoint.At("after forget")
}

// load reads the records of this boot. Invalid ones are logged and ignored: they are a newer program's, or for an
// operator to check.
func (k *Manager) load() ([]record, error) {
	err := atomicfile.Sweep(k.cfg.Dir)
	entries, problem := os.ReadDir(k.cfg.Dir)
	if err = errors.Join(err, problem); err != nil {
		return nil, model.Errorf(model.CodeIO, "", "directory of leases: %w", err)
	}
	var out []record
	for _, e := range entries {
		path := filepath.Join(k.cfg.Dir, e.Name())
		if !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		rec, err := read(path)
		switch {
		case err != nil:
			k.cfg.Log.Error("lease file is ignored", "path", path, "err", err)
		case rec.Boot != k.cfg.Boot:
			if err := os.Remove(path); err != nil {
				k.cfg.Log.Error("agent could not remove the lease file of another boot", "path", path, "err", err)
			}
		default:
			k.renewFuture(&rec)
			out = append(out, rec)
		}
	}
	return out, nil
}

// renewFuture makes leases due for renewal that were received later than now: the system's clock was set back since, and
// by that clock they would be renewed when they have long ended at the server, which assigns the address to another
// client. While a manager runs, its times are those of the monotonic clock.
func (k *Manager) renewFuture(rec *record) {
	now := k.cfg.Exchange.Now()
	for i, g := range rec.Grants {
		l, err := g.Lease()
		if err != nil || l.Expire.IsZero() || !g.Bound.After(now) {
			continue
		}
		k.cfg.Log.Warn("the clock was set back since a lease was received: it is renewed now", "attachment", rec.key().String(),
			"address", l.Address.String(), "received", g.Bound)
		rec.Grants[i].Bound = now.Add(-l.Renew.Sub(g.Bound))
	}
}

func read(path string) (record, error) {
	var rec record
	b, err := os.ReadFile(path)
	if err != nil {
		return rec, err
	}
	if err := json.Unmarshal(b, &rec); err != nil {
		return rec, err
	}
	if rec.Version != RecordVersion {
		return rec, fmt.Errorf("version %d, this program knows %d", rec.Version, RecordVersion)
	}
	return rec, nil
}
