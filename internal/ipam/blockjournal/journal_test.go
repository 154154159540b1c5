// SPDX-License-Identifier: Apache-2.0

package blockjournal

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestJournal: what was written is read again, by the same node and a program that is not older.
func TestJournal(t *testing.T) {
	state := t.TempDir()
	dir := filepath.Join(state, "blocks")
	if _, err := DuplicateNodes(state); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("duplicate nodes without a journal: %v", err)
	}
	if j, err := Read(dir, "a"); err != nil || !cmp.Equal(j, Journal{}) {
		t.Errorf("without a file: %+v, %v", j, err)
	}
	p := netip.MustParsePrefix
	want := Journal{
		Version: Version, Node: "a",
		Blocks: []Block{
			{
				Pool: "p", CIDR: p("10.0.0.0/28"), Parent: p("10.0.0.0/28"), Claim: "1", State: "owned",
				Lent: []netip.Addr{netip.MustParseAddr("10.0.0.3")},
			},
			{Pool: "p", CIDR: p("10.0.0.18/32"), Parent: p("10.0.0.16/28"), Claim: "2", State: "releasing"},
		},
		Sticky:         []Sticky{{Pool: "p", Addr: netip.MustParseAddr("10.0.0.4"), Claim: "shop/db"}},
		DuplicateNodes: []string{"m2"},
	}
	if err := Write(dir, want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir, "a")
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" || err != nil {
		t.Errorf("error %v, journal (-written +read):\n%s", err, d)
	}
	if hosts, err := DuplicateNodes(state); err != nil || !cmp.Equal(hosts, []string{"m2"}) {
		t.Errorf("duplicate nodes: %v, %v", hosts, err)
	}
	if _, err := Read(dir, "b"); err == nil || !strings.Contains(err.Error(), `is of node "a", this node is "b"`) {
		t.Errorf("read by another node: %v", err)
	}
	for text, want := range map[string]string{
		`{"version":2,"node":"a"}`: "version 2 is newer than 1", `{"version":`: "unexpected end of JSON input",
	} {
		if err := os.WriteFile(Path(dir), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(dir, "a"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
