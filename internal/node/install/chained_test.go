// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// chainPlugin adds a plugin to a list as istio-cni's installer does: it writes the whole file again, with sorted keys.
func chainPlugin(t *testing.T, path, typ string) {
	t.Helper()
	rewrite(t, path, func(plugins []any) []any {
		return append(plugins, map[string]any{"type": typ, "name": typ, "log_level": "info"})
	})
}

func rewrite(t *testing.T, path string, change func([]any) []any) {
	t.Helper()
	var list map[string]any
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	if err == nil {
		list["plugins"] = change(list["plugins"].([]any))
		b, err = json.MarshalIndent(list, "", "  ")
	}
	if err == nil {
		err = os.WriteFile(path, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// types are the plugins of a list in their order.
func types(t *testing.T, path string) (out []string) {
	t.Helper()
	var list struct{ Plugins []struct{ Type string } }
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Plugins {
		out = append(out, p.Type)
	}
	return out
}

// TestChained: plugins that service meshes add to weft's file stay there when weft's part changes and are gone when the
// mesh removes them; a file in which nothing of weft's part has changed is not written again, or the two programs would
// write it in turns forever.
func TestChained(t *testing.T) {
	c := Config{BinDir: "/none", ConfDir: t.TempDir()}
	own := Own{Name: "weft", Node: "n1", MTU: 1400, Pools: []int{4}}
	path := filepath.Join(c.ConfDir, clusterName)
	for name, write := range map[string]func() (string, error){
		"weft's own network": func() (string, error) {
			changes, err := Cluster(t.Context(), c, own)
			return says(c, changes), err
		},
		"another network's": func() (string, error) {
			changes, err := configureIn(t, c)
			return says(c, changes), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			derived := name != "weft's own network"
			detail := ""
			if derived {
				files(t, c.ConfDir, map[string]string{"10-a.conflist": list("a")})
				detail = " derived from 10-a.conflist"
			}
			pass := func(want string) {
				t.Helper()
				if text, err := write(); err != nil || text != want+" 00-weft.conflist"+detail+"\n" {
					t.Errorf("%q, %v, want %s", text, err, want)
				}
			}
			has := func(want ...string) {
				t.Helper()
				if diff := cmp.Diff(want, types(t, path)); diff != "" {
					t.Error(diff)
				}
			}
			pass("installed")
			plain, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			chainPlugin(t, path, "istio-cni")
			chainPlugin(t, path, "linkerd-cni")
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			pass("unchanged")
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the file was written again: %s, %v", after, err)
			}
			if derived {
				files(t, c.ConfDir, map[string]string{"10-a.conflist": list("b")})
			} else {
				own.MTU = 1300
			}
			pass("installed")
			has("weft-cni", "istio-cni", "linkerd-cni")
			pass("unchanged")
			rewrite(t, path, func(plugins []any) []any { return plugins[:1] })
			pass("installed")
			has("weft-cni")
			if after, err := os.ReadFile(path); err != nil || bytes.Equal(plain, after) {
				t.Errorf("it does not follow its settings: %s, %v", after, err)
			}
			// A plugin before weft-cni is none that a mesh adds: the file is weft's.
			rewrite(t, path, func(plugins []any) []any { return append([]any{map[string]any{"type": "x"}}, plugins...) })
			pass("installed")
			has("weft-cni")
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		})
	}
}
