// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weft-net/weft/internal/state"
)

// mostText bounds a file that is asked for, in bytes.
const mostText = 1 << 20

// answerFile reads a file of the machine.
func (c *Namespace) answerFile(path string) (state.Answer, error) {
	f, err := os.Open(c.file(path))
	if errors.Is(err, fs.ErrNotExist) {
		return state.Answer{}, nil
	}
	if err != nil {
		return state.Answer{}, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, mostText+1))
	if err == nil && len(text) > mostText {
		err = fmt.Errorf("%s: longer than %d bytes", path, mostText)
	}
	return state.Answer{Found: err == nil, Value: string(text)}, err
}

// file is the path of one of the machine's files.
func (c *Namespace) file(path string) string { return filepath.Join("/", c.Filters.Root, path) }
