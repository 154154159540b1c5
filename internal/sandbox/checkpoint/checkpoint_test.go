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

func TestWriteAndRead(t *testing.T) {
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

// TestCorruption: Read detects each changed byte, truncation, and a checkpoint of another sandbox.
func TestCorruption(t *testing.T) {
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
	detected := 0
	for i := range good[:len(good)-1] {
		b := append([]byte{}, good...)
		b[i] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		// The case of the two outer keys is ignored; no other change may pass.
		if got, err := s.Read("abc"); err == nil && !cmp.Equal(got, example()) {
			t.Errorf("byte %d (%q → %q) passed", i, good[i], b[i])
		} else if err != nil {
			detected++
		}
	}
	t.Logf("%d of %d corrupt files refused", detected, len(good)-1)
	for n := range good[:len(good)-2] {
		if _, err := parse(good[:n]); err == nil {
			t.Errorf("the first %d bytes passed", n)
		}
	}
	newer := example()
	newer.Schema = schema + 1
	if _, err := parse([]byte(`{"checksum":"","data":null}`)); err == nil {
		t.Error("an empty checkpoint passed")
	}
	if err := os.WriteFile(filepath.Join(dir, "other.json"), good, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read("other"); err == nil || !strings.Contains(err.Error(), `contains sandbox "abc"`) {
		t.Errorf("checkpoint of another sandbox: %v", err)
	}
}

func TestListCorrupt(t *testing.T) {
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
	valid, corrupt, err := s.List()
	if err != nil || len(valid) != 1 || len(corrupt) != 1 || corrupt[0].ID != "bad" {
		t.Errorf("valid %v, corrupt %v, %v", valid, corrupt, err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".abc.json.123")); err == nil {
		t.Error("the temporary file of a killed writer was not removed")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"checksum":"x","data":{"id":"a"}}`))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = parse(b) })
}
