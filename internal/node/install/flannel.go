// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
)

// flannelName is the configuration file of flannel's own installation.
const flannelName = "10-flannel.conflist"

// Original copies flannel's cni-conf.json at path to c.ConfDir, where flannel's own installation has it: weft's form
// sorts before it (Follow), and it is still there after a return to flannel. If path does not exist, nothing is
// changed.
func Original(ctx context.Context, c Config, path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return withHint(err)
	}
	p, err := open(ctx, c.ConfDir, confHint)
	if err != nil {
		return err
	}
	defer p.close()
	have, err := os.ReadFile(p.path(flannelName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return withHint(err)
	}
	if err == nil && bytes.Equal(have, text) {
		return nil
	}
	if _, err := derive(p.path(flannelName), text, c); err != nil {
		return err // runtimes could not use it either
	}
	return p.write(flannelName, bytes.NewReader(text), 0o644)
}
