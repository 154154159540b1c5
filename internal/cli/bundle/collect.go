// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
)

// Limits of the collection.
const (
	sizeLimit     = 64 << 20 // bytes of a node's bundle
	maxCollecting = 16       // nodes at the same time
	askTimeout    = 5 * time.Second
)

// Collect writes the bundle of each node as NODE.tar.gz into a new directory, and ObjectsFile, and returns the paths.
// Silent says what is missing: nodes without a bundle, and those whose agent does not answer, so that their bundle lacks
// what it knows.
func Collect(ctx context.Context, c agents.Cluster, path string) (written []string, silent []error, err error) {
	if err := os.Mkdir(path, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, nil, model.Errorf(model.CodeIO, "name another directory with -o", "--output %q already exists", path)
		}
		return nil, nil, ui.FileError("for example -o bundles", "--output", path, err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, nil, fmt.Errorf("--output: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(maxCollecting)
	for _, a := range c.Agents {
		group.Go(func() error {
			name := a.Node + ".tar.gz"
			failed := collect(ctx, c, a.Node, root, name)
			missing := failed
			if missing == nil { // there is a bundle, which may lack what the agent knows
				q := adminapi.Request{Method: http.MethodGet, Path: adminapi.RouteStatus, Timeout: askTimeout}
				missing = a.Do(ctx, q, new(any))
			}
			mu.Lock()
			defer mu.Unlock()
			if failed == nil {
				written = append(written, filepath.Join(path, name))
			}
			if missing != nil {
				silent = append(silent, missing)
			}
			return nil
		})
	}
	err = group.Wait()
	if failed := writeObjects(ctx, c.Objects, root); failed != nil {
		silent = append(silent, fmt.Errorf("%s: %w", ObjectsFile, failed))
	} else {
		written = append(written, filepath.Join(path, ObjectsFile))
	}
	slices.Sort(written)
	slices.SortFunc(silent, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return written, silent, err
}

// collect writes the bundle of a node. If it fails there is no file.
func collect(ctx context.Context, c agents.Cluster, node string, root *os.Root, name string) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("node %s: %w", node, err)
	}
	err = errors.Join(c.SupportBundle(ctx, node, &limited{f, sizeLimit}), f.Close())
	if err != nil {
		return fmt.Errorf("node %s: %w", node, errors.Join(err, root.Remove(name)))
	}
	return nil
}

// limited is a writer that fails beyond a number of bytes.
type limited struct {
	w    io.Writer
	left int
}

// Write writes, or fails if the limit is exceeded.
func (l *limited) Write(b []byte) (int, error) {
	if len(b) > l.left {
		return 0, fmt.Errorf("support bundle is larger than %d bytes", sizeLimit)
	}
	l.left -= len(b)
	return l.w.Write(b)
}
