// SPDX-License-Identifier: Apache-2.0

package netns_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/weft-net/weft/internal/netns"
)

// A namespace is gone when its path names nothing, or another one.
func TestGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ns")
	ns, err := netns.New(path)
	if err != nil {
		t.Fatal(err)
	}
	id, err := ns.ID()
	if err != nil {
		t.Fatal(err)
	}
	if netns.Gone(path, id) {
		t.Error("a namespace that is there is gone")
	}
	if !netns.Gone(path, id+1) {
		t.Error("another one's path is taken for its own")
	}
	if err := errors.Join(netns.Remove(path), ns.Close()); err != nil {
		t.Fatal(err)
	}
	if !netns.Gone(path, id) {
		t.Error("a namespace that was removed is not gone")
	}
}
