// SPDX-License-Identifier: Apache-2.0

package confdir

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"go.uber.org/goleak"
)

// asked is a Validator that knows some plugins.
type asked struct {
	plugins map[string]string // type → newest version
	status  error
}

func (a asked) ValidateNetworkList(_ context.Context, list *libcni.NetworkConfigList) ([]string, error) {
	for _, p := range list.Plugins {
		v, ok := a.plugins[p.Network.Type]
		if !ok {
			return nil, errors.New("failed to find plugin " + p.Network.Type)
		}
		if list.CNIVersion > v {
			return nil, errors.New("plugin " + p.Network.Type + " does not support config version " + list.CNIVersion)
		}
	}
	return nil, nil
}

func (a asked) GetStatusNetworkList(context.Context, *libcni.NetworkConfigList) error {
	return a.status
}

func known() asked {
	return asked{plugins: map[string]string{"bridge": "1.1.0", "loopback": "1.1.0", "old": "0.4.0", "portmap": "1.1.0"}}
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	addrs = `"ipam":{"type":"host-local","subnet":"10.0.0.0/24"}`
	list  = `{"cniVersion":"1.0.0","name":"LIST","plugins":[{"type":"bridge",` + addrs + `}]}`
	plain = `{"cniVersion":"0.2.0","name":"plain","type":"bridge",` + addrs + `}`
)

func TestLoad(t *testing.T) {
	for _, tc := range []struct {
		name             string
		files            map[string]string
		network, problem string
		bad              string // a file and part of its error
	}{
		{
			"first in lexical order", map[string]string{
				"9.conflist": strings.Replace(list, "LIST", "nine", 1), "10.conf": plain,
			}, "plain", "", "",
		},
		{
			"other endings are no configurations",
			map[string]string{"1.txt": plain, "2.json": plain, "0.conf.bak": "{"},
			"plain", "", "",
		},
		{
			"a bad file is skipped",
			map[string]string{"1.conf": "{", "2.conf": plain},
			"plain", "",
			"1.conf: network configuration",
		},
		{
			"a plugin that is missing", map[string]string{
				"1.conf": strings.Replace(plain, "bridge", "none", 1), "2.conf": plain,
			}, "plain", "", "1.conf: network plain: failed to find plugin none",
		},
		{
			"a version that a plugin does not speak", map[string]string{
				"1.conflist": strings.Replace(list, "bridge", "old", 1), "2.conf": plain,
			}, "plain", "", "1.conflist: network LIST: plugin old does not support",
		},
		{
			"a name that is none",
			map[string]string{"1.conflist": strings.Replace(list, "LIST", "a/b", 1), "2.conf": plain},
			"plain", "", "1.conflist: ",
		},
		{
			"loopback is never the default", map[string]string{
				"00.conf": `{"cniVersion":"0.2.0","name":"mylo","type":"loopback"}`, "99.conf": plain,
			}, "plain", "", "",
		},
		{"none at all", nil, "", "no network configuration in", ""},
		{"only bad ones", map[string]string{"1.conf": "{"}, "", "1 files, 1 bad", "1.conf: "},
		{
			"plugins in further files", map[string]string{
				"1.conflist": `{"cniVersion":"1.0.0","name":"inl"}`, "inl/1.conf": `{"type":"bridge"}`,
			}, "inl", "", "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, tc.files)
			s := Load(context.Background(), dir, known())
			network := ""
			if s.Default != nil {
				network = s.Default.Name
				again, err := libcni.NetworkConfFromBytes(s.Default.Bytes)
				if err != nil || len(again.Plugins) != len(s.Default.Plugins) {
					t.Errorf("its bytes alone make another list: %v", err)
				}
			}
			if network != tc.network || (tc.problem == "") != (s.Problem == "") || !strings.Contains(s.Problem, tc.problem) {
				t.Errorf("network %q, problem %q; want %q, %q", network, s.Problem, tc.network, tc.problem)
			}
			bad := ""
			for _, f := range s.Files {
				if f.Error != "" {
					bad = filepath.Base(f.Path) + ": " + f.Error
				}
			}
			if (bad == "") != (tc.bad == "") || !strings.HasPrefix(bad, tc.bad) {
				t.Errorf("bad file %q, want %q", bad, tc.bad)
			}
		})
	}
}

func TestLoopbackAndStatus(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"1.conf": plain})
	if s := Load(context.Background(), dir, known()); s.Loopback == nil || s.Loopback.Name != "cni-loopback" {
		t.Errorf("loopback %+v", s.Loopback)
	}
	v := known()
	delete(v.plugins, "loopback")
	if s := Load(context.Background(), dir, v); !strings.Contains(s.Problem,
		"loopback network: failed to find plugin loopback") {
		t.Errorf("without the plugin: %q", s.Problem)
	}
	v = known()
	v.status = errors.New("no address is left")
	if s := Load(context.Background(), dir, v); s.Problem != "network plain is not ready: no address is left" {
		t.Errorf("STATUS: %q", s.Problem)
	}
	write(t, dir, map[string]string{"0.conf": `{"cniVersion":"0.2.0","name":"mylo","type":"loopback"}`})
	if s := Load(context.Background(), dir, known()); s.Loopback == nil || s.Loopback.Name != "mylo" {
		t.Errorf("loopback of a file: %+v", s.Loopback)
	}
}

func TestUnknownKeyIsNamed(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"1.conf": strings.Replace(plain, `"type"`, `"brige":"b","type"`, 1)})
	s := Load(context.Background(), dir, known())
	if s.Default == nil || len(s.Files[0].Warnings) != 1 ||
		!strings.Contains(s.Files[0].Warnings[0], `unknown key "brige" (did you mean bridge?)`) {
		t.Errorf("%+v", s.Files)
	}
}

// Whatever happens to the directory is seen: it comes to be, files come, change, are renamed and go, and so do plugins.
func TestWatch(t *testing.T) {
	defer goleak.VerifyNone(t)
	root := t.TempDir()
	dir, bin := filepath.Join(root, "net.d"), filepath.Join(root, "bin")
	ctx, cancel := context.WithCancel(context.Background())
	v := known()
	w := NewWatcher(ctx, dir, []string{bin}, v, slog.New(slog.DiscardHandler))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	step := func(what string, do func() error, want string) {
		t.Helper()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); ; {
			name := ""
			if s := w.Snapshot(); s.Default != nil {
				name = s.Default.Name
			}
			if name == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: network %q, want %q", what, name, want)
			}
			select {
			case <-w.Changed():
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	put := func(name, text string) func() error {
		return func() error { write(t, root, map[string]string{name: text}); return nil }
	}
	step("directory and file come", put("net.d/5.conf", plain), "plain")
	step("a file before it comes", put("net.d/1.conflist", list), "LIST")
	step("it changes", put("net.d/1.conflist", strings.Replace(list, "LIST", "other", 1)), "other")
	step("it is renamed away",
		func() error { return os.Rename(filepath.Join(dir, "1.conflist"), filepath.Join(dir, "1.off")) }, "plain")
	step("it is renamed back",
		func() error { return os.Rename(filepath.Join(dir, "1.off"), filepath.Join(dir, "0.conflist")) }, "other")
	step("it goes", func() error { return os.Remove(filepath.Join(dir, "0.conflist")) }, "plain")
	step("all go", func() error { return os.RemoveAll(dir) }, "")
	step("all come back", put("net.d/5.conf", plain), "plain")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(list))
	f.Add([]byte(plain))
	f.Add([]byte(`{"name":"x","plugins":{}}`))
	dir := f.TempDir()
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = Parse(b, dir) })
}

// What belongs to the runtime is not taken from a file, and a type is a name.
func TestParseIsSound(t *testing.T) {
	list, err := Parse(
		[]byte(
			`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"a","prevResult":{"cniVersion":"1.0.0","ips":[]},"x":1}]}`,
		), t.TempDir(),
	)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(list.Plugins[0].Bytes), `{"type":"a","x":1}`; got != want {
		t.Errorf("plugin object %s, want %s", got, want)
	}
	_, err = Parse([]byte(`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"a"},{"type":"../b"}]}`), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "plugins[1].type") {
		t.Errorf("a type with a path: %v", err)
	}
}
