// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// TestInotifyLimit: more nodes than the limit of inotify instances allows are refused, with the sysctl as a hint.
func TestInotifyLimit(t *testing.T) {
	proc := t.TempDir()
	for name, text := range map[string]string{"sys/fs/inotify/max_user_instances": "128\n", "7/fd": ""} {
		if err := os.MkdirAll(filepath.Join(proc, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if text == "" {
			if err := errors.Join(os.MkdirAll(filepath.Join(proc, name), 0o755),
				os.Symlink("anon_inode:inotify", filepath.Join(proc, name, "3"))); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(filepath.Join(proc, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkInotify(proc, 20); err != nil {
		t.Error(err)
	}
	var f *model.Error
	if err := checkInotify(proc, 30); !errors.As(err, &f) || !strings.Contains(f.Msg, "in addition to 1 in use") ||
		f.Hint != "sysctl -w fs.inotify.max_user_instances=1024, or choose fewer --nodes" {
		t.Errorf("30 nodes with a limit of 128: %v", err)
	}
}
