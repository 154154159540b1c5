// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// writeFiles writes each file atomically: a reader finds the whole file or none.
func writeFiles(files []plugin.File) error {
	for _, f := range files {
		if err := writeFile(f); err != nil {
			return model.Errorf(model.CodeIO, "", "backup %s: %w", f.Path, err)
		}
	}
	return nil
}

func writeFile(f plugin.File) error {
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(f.Path, []byte(f.Text), 0o600, atomicfile.CrashSafe)
}

func removeFiles(files []plugin.File) error {
	var errs []error
	for _, f := range files {
		if err := atomicfile.Remove(f.Path); err != nil {
			errs = append(errs, fmt.Errorf("backup: %w", err))
		}
	}
	return errors.Join(errs...)
}
