// SPDX-License-Identifier: Apache-2.0

package process

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/weft-net/weft/internal/atomicfile"
)

// WriteFile replaces a file atomically: a reader sees the old or the new content, even if the writer is killed. The name
// of the temporary file begins with a dot.
func WriteFile(path string, b []byte, mode os.FileMode) error {
	if err := atomicfile.Write(path, b, mode, atomicfile.CrashSafe); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// WriteJSON writes a value as JSON, like WriteFile.
func WriteJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return WriteFile(path, append(b, '\n'), 0o600)
}

// ReadJSON reads a value that WriteJSON wrote.
func ReadJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
