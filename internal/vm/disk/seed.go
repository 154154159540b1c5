// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/weft-net/weft/internal/vm/manifest"
)

var errNoTool = errors.New("no xorrisofs, genisoimage or mkisofs")

// seed writes the ISO file system for cloud-init, with a distribution's tool.
func (c Config) seed(ctx context.Context, to string, s manifest.Seed) (err error) {
	tool := ""
	for _, name := range []string{"xorrisofs", "genisoimage", "mkisofs"} {
		if path, err := exec.LookPath(name); err == nil {
			tool = path
			break
		}
	}
	if tool == "" {
		return errNoTool
	}
	dir, err := os.MkdirTemp(c.Dir, "seed")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for name, text := range s.Files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	out, err := exec.CommandContext(ctx, tool, "-quiet", "-o", to, "-V", s.Label, "-J", "-r", dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(tool), err, strings.TrimSpace(string(out)))
	}
	return nil
}
