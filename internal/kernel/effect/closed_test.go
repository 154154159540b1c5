// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"errors"
	"os"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// TestClosedTracker: a closed Conntrack does not open its socket again, however late it is used.
func TestClosedTracker(t *testing.T) {
	var k Conntrack
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	ns, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	_, err = k.List(ns, func(state.Connection) bool { return true })
	if !errors.Is(err, os.ErrClosed) || k.sock != nil {
		t.Errorf("list after close: %v, open: %v", err, k.sock != nil)
	}
}
