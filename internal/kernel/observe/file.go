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

// maxFile is the maximum size of a file, in bytes.
const maxFile = 1 << 20

// answerFile reads a file of the node.
func (c *Namespace) answerFile(path string) (state.Answer, error) {
	f, err := os.Open(c.file(path))
	if errors.Is(err, fs.ErrNotExist) {
		return state.Answer{}, nil
	}
	if err != nil {
		return state.Answer{}, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s: longer than %d bytes", path, maxFile)
	}
	return state.Answer{Found: err == nil, Value: string(text)}, err
}

// file returns the path of one of the node's files.
func (c *Namespace) file(path string) string { return filepath.Join("/", c.Filters.Root, path) }
