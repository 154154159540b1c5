// SPDX-License-Identifier: Apache-2.0

// Package doctornote leaves notes for weft doctor in the agent's state directory.
package doctornote

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"github.com/weft-net/weft/internal/atomicfile"
)

// Write writes a value into a file for weft doctor; where there is nothing to say the file goes.
func Write(path string, value any, nothing bool) error {
	if nothing {
		err := os.Remove(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	b, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, b, 0o600, atomicfile.CrashSafe)
}
