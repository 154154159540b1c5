// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cni"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestDerive compares with golden files: testdata/NAME/10-net.conflist (or .conf) is the original, want.json its form.
func TestDerive(t *testing.T) {
	files, err := filepath.Glob("testdata/*/10-net.conf*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no originals: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := derive(file, b, Config{})
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join(filepath.Dir(file), "want.json")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), string(got)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			sound(t, b, got)
		})
	}
}

// sound checks what all forms have in common.
func sound(t *testing.T, original, form []byte) {
	t.Helper()
	if _, mine := derivedFrom(form); !mine {
		t.Error("the form is not known as weft's")
	}
	outer, err := cni.ParseNetwork(form)
	if err != nil {
		t.Fatalf("the form: %v", err)
	}
	inner, err := cni.ParseNetwork(original)
	if err != nil {
		return // its plugins are in a folder
	}
	if outer.Name != inner.Name || outer.CNIVersion != cni.Latest || len(outer.Plugins) != 1 ||
		outer.Plugins[0].Type != cni.ShimType {
		t.Errorf("the form is %+v", outer)
	}
	var shim struct {
		Delegates []json.RawMessage `json:"delegates"`
	}
	if err := json.Unmarshal(outer.Plugins[0].Raw, &shim); err != nil || len(shim.Delegates) != 1 {
		t.Fatalf("delegates: %v, %v", shim.Delegates, err)
	}
	delegate, err := cni.ParseNetwork(shim.Delegates[0])
	if err != nil {
		t.Fatalf("delegate: %v", err)
	}
	if delegate.Name != inner.Name || delegate.CNIVersion != inner.CNIVersion ||
		len(delegate.Plugins) < len(inner.Plugins) {
		t.Errorf("delegate %+v of %+v", delegate, inner)
	}
}

func TestNotDerived(t *testing.T) {
	for conf, want := range map[string]string{
		``:   "network configuration: unexpected end of JSON input",
		`[]`: "network configuration: json: cannot unmarshal array",
		`{"cniVersion":"1.0.0","name":"lo","type":"loopback"}`:                                      errLoopback.Error(),
		`{"cniVersion":"1.0.0","name":"lo","plugins":[{"type":"loopback"}]}`:                        errLoopback.Error(),
		`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"weft-cni","delegates":[]}]}`:          errAgent.Error(),
		`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"weft-cni"},{"type":"portmap"}]}`:      errAgent.Error(),
		`{"cniVersion":"1.0.0","name":"n","plugins":[]}`:                                            "no plugins",
		`{"cniVersion":"1.0.0","name":"../n","plugins":[{"type":"ptp"}]}`:                           `"../n"`,
		`{"cniVersion":"9.0.0","name":"n","plugins":[{"type":"ptp"}]}`:                              `"9.0.0"`,
		`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"a/b"}]}`:                              "a/b",
		`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"ptp","capabilities":{"ips":"yes"}}]}`: "",
	} {
		_, err := derive("/x/10-net.conflist", []byte(conf), Config{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", conf, err, want)
		}
	}
}

func TestNameBefore(t *testing.T) {
	for other, want := range map[string]string{
		"10-bridge.conflist": "00-weft.conflist", "cni.conf": "00-weft.conflist", "00-x.conf": "00-weft.conflist",
		"00-calico.conflist": "+weft.conflist", "00-weft.conf": "+weft.conflist", "-x.conf": "+weft.conflist", "!.conf": "",
		"+a.conf": "",
	} {
		got, err := nameBefore(other, false)
		if got != want || (err != nil) != (want == "") || want != "" && got >= other {
			t.Errorf("before %s: %q, %v; want %q", other, got, err, want)
		}
	}
}

func FuzzDerive(f *testing.F) {
	files, _ := filepath.Glob("testdata/*/10-net.conf*")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		form, err := derive("/nowhere/10-net.conflist", b, Config{Socket: "/run/x.sock"})
		if err != nil {
			return
		}
		sound(t, b, form)
		again, err := derive("/nowhere/10-net.conflist", b, Config{Socket: "/run/x.sock"})
		if err != nil || !bytes.Equal(form, again) {
			t.Errorf("a second time: %v", err)
		}
	})
}
