// SPDX-License-Identifier: Apache-2.0

package netns_test

import (
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// TestCookie: namespaces that have the same inode number one after the other have different cookies.
func TestCookie(t *testing.T) {
	seen := map[uint64]bool{}
	for range 20 {
		ns, err := netns.Anonymous()
		if err != nil {
			t.Fatal(err)
		}
		cookie, err := ns.Cookie()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ns.Cookie(); err != nil || again != cookie {
			t.Errorf("%d, then %d (%v)", cookie, again, err)
		}
		if seen[cookie] && cookie != 0 {
			t.Errorf("cookie %d twice", cookie)
		}
		seen[cookie] = true
		_ = ns.Close()
	}
}

func TestAgain(t *testing.T) {
	ns := nettest.NS(t, "ns")
	again, err := ns.Duplicate()
	if err != nil {
		t.Fatal(err)
	}
	if same, err := netns.Same(ns, again); err != nil || !same {
		t.Errorf("%v %v", same, err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if _, err := again.Duplicate(); err == nil {
		t.Error("a closed namespace was opened again")
	}
	if err := ns.Do(func() error { return nil }); err != nil {
		t.Error(err)
	}
}
