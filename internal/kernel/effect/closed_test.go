// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"errors"
	"os"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// TestClosedTracker: what is closed opens nothing again, however late somebody asks.
func TestClosedTracker(t *testing.T) {
	var k Tracker
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
