// SPDX-License-Identifier: Apache-2.0

// Package doctorfile writes the files that weft doctor reads from the agent's state directory.
package doctorfile

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"github.com/weft-net/weft/internal/atomicfile"
)

// Write writes a value as JSON to a file for weft doctor, or removes the file if the value is empty.
func Write(path string, value any, empty bool) error {
	if empty {
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
