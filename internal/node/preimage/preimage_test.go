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

// A value that is taken is not in the record any more.
func TestTake(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, "a")
	if err := s.Keep("net/netfilter/nf_conntrack_acct", "0"); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, "a")
	if value, kept, err := s.Take("net/netfilter/nf_conntrack_acct"); value != "0" || !kept || err != nil {
		t.Errorf("%q, %t, %v", value, kept, err)
	}
	for _, s := range []*Settings{s, open(t, dir, "a")} {
		if _, kept, err := s.Take("net/netfilter/nf_conntrack_acct"); kept || err != nil {
			t.Errorf("%t, %v", kept, err)
		}
	}
}
