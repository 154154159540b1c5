// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
)

// flannelName is the file that flannel's own installation puts its configuration into.
const flannelName = "10-flannel.conflist"

// Original puts a copy of flannel's cni-conf.json, at path, into c.ConfDir, where flannel's own installation has it:
// its form comes before it (Follow), and it is there for whoever goes back. Where there is nothing at path, the
// directory stays as it is.
func Original(ctx context.Context, c Config, path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return trouble(err)
	}
	p, err := open(ctx, c.ConfDir, confHint)
	if err != nil {
		return err
	}
	defer p.close()
	have, err := os.ReadFile(p.path(flannelName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return trouble(err)
	}
	if err == nil && bytes.Equal(have, text) {
		return nil
	}
	if _, err := derive(p.path(flannelName), text, c); err != nil {
		return err // no runtime could use it either
	}
	return p.put(flannelName, bytes.NewReader(text), 0o644)
}
