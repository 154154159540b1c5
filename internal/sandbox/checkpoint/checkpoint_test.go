// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func example() Checkpoint {
	return Checkpoint{
		Schema: schema, ID: "abc", Name: "web", Namespace: "default", UID: "u", Attempt: 2, Netns: "/n/abc",
		PortMappings: []PortMapping{{HostPort: 8080, ContainerPort: 80, Protocol: "tcp"}}, Created: time.Unix(1, 0).UTC(),
	}
}

func TestReadWhatWasWritten(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "c"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(example()); err != nil {
		t.Fatal(err)
	}
	got, err := s.Read("abc")
	if diff := cmp.Diff(example(), got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for range 2 {
		if err := s.Remove("abc"); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Read("abc"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Remove: %v", err)
	}
}

// Every damage is found: each single changed byte, a cut, a newer form, another's name.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(example()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "abc.json")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := 0
	for i := range good[:len(good)-1] {
		b := append([]byte{}, good...)
		b[i] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		// The names of the two outer keys are read without regard to case; nothing else may pass.
		if got, err := s.Read("abc"); err == nil && !cmp.Equal(got, example()) {
			t.Errorf("byte %d (%q → %q) passed", i, good[i], b[i])
		} else if err != nil {
			damaged++
		}
	}
	t.Logf("%d of %d damaged files refused", damaged, len(good)-1)
	for n := range good[:len(good)-2] {
		if _, err := parse(good[:n]); err == nil {
			t.Errorf("the first %d bytes passed", n)
		}
	}
	newer := example()
	newer.Schema = schema + 1
	if _, err := parse([]byte(`{"checksum":"","data":null}`)); err == nil {
		t.Error("an empty one passed")
	}
	if err := os.WriteFile(filepath.Join(dir, "other.json"), good, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read("other"); err == nil || !strings.Contains(err.Error(), `about sandbox "abc"`) {
		t.Errorf("another's name: %v", err)
	}
}

func TestListNamesTheBroken(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(example()); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"bad.json": "{", ".abc.json.123": "half"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good, broken, err := s.List()
	if err != nil || len(good) != 1 || len(broken) != 1 || broken[0].ID != "bad" {
		t.Errorf("good %v, broken %v, %v", good, broken, err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".abc.json.123")); err == nil {
		t.Error("what a killed writer left is still there")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"checksum":"x","data":{"id":"a"}}`))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = parse(b) })
}
