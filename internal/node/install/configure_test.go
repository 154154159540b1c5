// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// files replaces a directory's content.
func files(t *testing.T, dir string, content map[string]string) {
	t.Helper()
	for name, text := range content {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
}

func list(name string) string {
	return fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"plugins":[{"type":"ptp"}]}`, name)
}

const agents = `{"cniVersion":"1.0.0","name":"own","plugins":[{"type":"weft-cni","delegates":[{"type":"ptp"}]}]}`

// TestChoice: which network of a directory is derived from.
func TestChoice(t *testing.T) {
	for name, x := range map[string]struct {
		files map[string]string
		want  string // the change, or the error
	}{
		"the first": {
			map[string]string{"20-b.conflist": list("b"), "10-a.conflist": list("a"), "05-x.txt": "no configuration"},
			"installed 00-weft.conflist derived from 10-a.conflist\n",
		},
		"the first good one": {
			map[string]string{
				"10-a.conflist": "{", "11-a.conf": `{"name":"x"}`, "20-b.conflist": list("b"),
				"00-lo.conf": `{"cniVersion":"1.0.0","name":"lo","type":"loopback"}`,
			},
			"installed 00-weft.conflist derived from 20-b.conflist\n",
		},
		"early": {
			map[string]string{"00-a.conflist": list("a")}, "installed +weft.conflist derived from 00-a.conflist\n",
		},
		"the agent's": {
			map[string]string{"10-own.conflist": agents, "20-b.conflist": list("b")},
			"unchanged 10-own.conflist it is the agent's conflist\n",
		},
		"none": {nil, "DIR: no network configuration"},
		"none yet": {
			map[string]string{
				"10-a.conflist": "{",
			}, "DIR: no network configuration: 10-a.conflist: network configuration: unexpected end of JSON input",
		},
		"taken name": {
			map[string]string{"00-weft.conflist": `{}`, "10-a.conflist": list("a")},
			"configuration DIR/00-weft.conflist: not weft's, and nothing was changed",
		},
		"no name": {
			map[string]string{"!a.conflist": list("a")}, "configuration file !a.conflist: no name sorts before it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newDirs(t)
			c.ConfDir = t.TempDir()
			files(t, c.ConfDir, x.files)
			before := listing(t, c.ConfDir)
			changes, err := configureIn(t, c)
			got := says(c, changes)
			if err != nil {
				got = strings.TrimPrefix(strings.ReplaceAll(fault(t, err).Msg, c.ConfDir, "DIR"), "directory ")
			}
			if d := cmp.Diff(x.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			remove(t, c)
			equal(t, "taken back", before, listing(t, c.ConfDir))
		})
	}
}

func configureIn(t *testing.T, c Config) ([]Change, error) {
	t.Helper()
	p, err := open(t.Context(), c.ConfDir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	return configure(p, c)
}

// TestForm: a form has the mode of its source, and the agent's socket if it is not the default.
func TestForm(t *testing.T) {
	c := newDirs(t)
	c.Socket = "/run/other.sock"
	install(t, c)
	path := filepath.Join(c.ConfDir, "00-weft.conflist")
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
	if b, err := os.ReadFile(path); err != nil || !strings.Contains(string(b), `"socket": "/run/other.sock"`) {
		t.Errorf("%s, %v", b, err)
	}
}

// TestChanges: the form follows its source.
func TestChanges(t *testing.T) {
	c := newDirs(t)
	dir := c.ConfDir
	install(t, c)
	steps := []struct {
		do   func()
		want string
	}{
		{func() {}, "unchanged 00-weft.conflist derived from 10-pods.conflist\n"},
		{
			func() { files(t, dir, map[string]string{"10-pods.conflist": list("renamed")}) },
			"installed 00-weft.conflist derived from 10-pods.conflist\n",
		},
		{
			func() { files(t, dir, map[string]string{"00-first.conflist": list("first")}) },
			"installed +weft.conflist derived from 00-first.conflist\nremoved 00-weft.conflist was derived from 10-pods.conflist\n",
		},
		{
			func() { _ = os.Remove(filepath.Join(dir, "00-first.conflist")) },
			"installed 00-weft.conflist derived from 10-pods.conflist\nremoved +weft.conflist was derived from 00-first.conflist\n",
		},
		{
			func() { files(t, dir, map[string]string{"10-pods.conflist": "{", "20-b.conflist": list("b")}) },
			"error: configuration DIR/10-pods.conflist: network configuration: unexpected end of JSON input",
		},
		{
			func() { _ = os.Remove(filepath.Join(dir, "10-pods.conflist")) },
			"installed 00-weft.conflist derived from 20-b.conflist\n",
		},
		{
			func() { files(t, dir, map[string]string{"10-own.conflist": agents}) },
			"removed 00-weft.conflist was derived from 20-b.conflist\nunchanged 10-own.conflist it is the agent's conflist\n",
		},
	}
	for i, s := range steps {
		s.do()
		changes, err := configureIn(t, c)
		got := says(c, changes)
		if err != nil {
			got = "error: " + strings.ReplaceAll(fault(t, err).Msg, dir, "DIR")
		}
		if d := cmp.Diff(s.want, got); d != "" {
			t.Errorf("step %d (-want +got):\n%s", i, d)
		}
	}
}

// reported collects what Follow reports.
type reported struct {
	sync.Mutex
	lines []string
}

func (o *reported) await(t *testing.T, what, want string) {
	t.Helper()
	for range 1200 {
		o.Lock()
		all := strings.Join(o.lines, "")
		if strings.Contains(all, want) {
			o.lines = nil
			o.Unlock()
			return
		}
		o.Unlock()
		time.Sleep(50 * time.Millisecond)
	}
	o.Lock()
	defer o.Unlock()
	t.Fatalf("%s: waited for %q, was told %q", what, want, o.lines)
}

// TestFollow starts before the network and its directory exist.
func TestFollow(t *testing.T) {
	c := newDirs(t)
	c.ConfDir = filepath.Join(t.TempDir(), "net.d")
	ctx, cancel := context.WithCancel(t.Context())
	var o reported
	done := make(chan error)
	go func() {
		done <- Follow(ctx, c, func(changes []Change, err error) {
			o.Lock()
			defer o.Unlock()
			o.lines = append(o.lines, says(c, changes))
			if err != nil {
				o.lines = append(o.lines, strings.ReplaceAll(err.Error(), c.ConfDir, "DIR")+"\n")
			}
		})
	}()
	o.await(t, "no directory", "directory DIR does not exist")
	if err := os.Mkdir(c.ConfDir, 0o755); err != nil {
		t.Fatal(err)
	}
	o.await(t, "no network", "directory DIR: no network configuration")
	files(t, c.ConfDir, map[string]string{"10-pods.conflist": chain})
	o.await(t, "a network", "installed 00-weft.conflist derived from 10-pods.conflist\n")
	files(t, c.ConfDir, map[string]string{"10-pods.conflist": "{"})
	o.await(t, "a spoiled network", "unexpected end of JSON input")
	files(t, c.ConfDir, map[string]string{"10-pods.conflist": list("other")})
	o.await(t, "another network", "installed 00-weft.conflist derived from 10-pods.conflist\n")
	folder := filepath.Join(c.ConfDir, "other")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	files(t, folder, map[string]string{"50.conf": `{"type":"tuning"}`})
	o.await(t, "a plugin in its folder", "installed 00-weft.conflist derived from 10-pods.conflist\n")
	files(t, folder, map[string]string{"50.conf": `{"type":"portmap"}`})
	o.await(t, "another plugin in its folder", "installed 00-weft.conflist derived from 10-pods.conflist\n")
	if err := os.Remove(filepath.Join(c.ConfDir, "10-pods.conflist")); err != nil {
		t.Fatal(err)
	}
	o.await(t, "no network any more", "removed 00-weft.conflist was derived from 10-pods.conflist\n")
	cancel()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
