// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// backer is what planners are whose reference plugin remembers in a file what it changed.
type backer interface {
	// Backup is the file's path.
	Backup(in plugin.Input) (string, error)
	// FromBackup reads what there was before; false when the file says nothing.
	FromBackup(in plugin.Input, text []byte) (state.Fragment, bool)
}

// writeFiles writes files in one step each: a reader finds a whole one or none.
func writeFiles(files []plugin.File) error {
	for _, f := range files {
		if err := writeFile(f); err != nil {
			return model.Faultf(model.CodeIO, "", "backup %s: %w", f.Path, err)
		}
	}
	return nil
}

func writeFile(f plugin.File) error {
	dir := filepath.Dir(f.Path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(f.Text)
	if err := errors.Join(err, tmp.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return os.Rename(tmp.Name(), f.Path)
}

func removeFiles(files []plugin.File) error {
	var errs []error
	for _, f := range files {
		if err := os.Remove(f.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("backup: %w", err))
		}
	}
	return errors.Join(errs...)
}

// backedUp gives back what the reference plugin changed, when nothing else is known of it, and takes its file away: also
// when the container's namespace has gone, where the reference plugin leaves it.
func (a *Attacher) backedUp(ctx context.Context, job Job, conf model.PluginConf, p plugin.Planner) error {
	b, ok := p.(backer)
	if !ok {
		return nil
	}
	in := plugin.Input{Conf: conf, Request: job.Request}
	path, err := b.Backup(in)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if f, ok := b.FromBackup(in, text); ok && job.Netns != nil {
		spaces, done, err := a.spaces(job.Netns)
		if err != nil {
			return err
		}
		defer done()
		if err := spaces.Restore(ctx, f); err != nil {
			a.cfg.Log.Warn("container is not as it was", "attachment", job.Request.Key().String(), "err", err)
		}
	}
	return removeFiles([]plugin.File{{Path: path}})
}
