// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

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
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), f.Path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
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
