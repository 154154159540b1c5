// SPDX-License-Identifier: Apache-2.0

package preimage

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func open(t *testing.T, dir, boot string) *Settings {
	t.Helper()
	s, err := Open(dir, boot)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The first value of a boot is kept, also over restarts of the agent; one that cannot be written is an error.
func TestSettings(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, "a")
	for _, value := range []string{"0", "1"} {
		if err := s.Keep("net/ipv4/ip_forward", value); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, dir, "a")
	if err := s.Keep("net/ipv4/ip_forward", "1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Keep("net/ipv6/conf/all/forwarding", "0"); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"net/ipv4/ip_forward": "0", "net/ipv6/conf/all/forwarding": "0"}
	if got := open(t, dir, "a").All(); !maps.Equal(got, want) {
		t.Errorf("recorded %v, want %v", got, want)
	}
	if got := open(t, dir, "b").All(); len(got) != 0 {
		t.Errorf("another boot has %v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, "a"); err == nil || !strings.Contains(err.Error(), FileName) {
		t.Errorf("an unreadable record: %v", err)
	}
	gone := open(t, t.TempDir(), "a")
	gone.path = filepath.Join(dir, "missing", FileName)
	for range 2 { // it is not taken for recorded
		if err := gone.Keep("net/ipv4/ip_forward", "0"); err == nil {
			t.Error("a record that is not written is no error")
		}
	}
}

// A value is in the record until it is forgotten.
func TestForget(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, "a")
	const name = "net/netfilter/nf_conntrack_acct"
	if err := s.Keep(name, "0"); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, "a")
	if value, kept := s.Kept(name); value != "0" || !kept {
		t.Errorf("%q, %t", value, kept)
	}
	for range 2 {
		if err := s.Forget(name); err != nil {
			t.Error(err)
		}
	}
	for _, s := range []*Settings{s, open(t, dir, "a")} {
		if _, kept := s.Kept(name); kept {
			t.Error("it is recorded still")
		}
	}
}
