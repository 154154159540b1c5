// SPDX-License-Identifier: Apache-2.0

package duplicatenode

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// TestOwns: a block of another machine ID is another host's while its claims change, and this host's when they have not
// changed for GoneAfter.
func TestOwns(t *testing.T) {
	now := time.Unix(1000, 0)
	found := notify.New()
	d := New(Config{
		Node: "a", MachineID: "m1", GoneAfter: time.Minute, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return now }, Found: found,
	})
	block := model.AddressBlock{
		Pool: "p", CIDR: netip.MustParsePrefix("10.0.0.0/28"), Node: "a", MachineID: "m2", Claim: "1",
	}
	owns := func(want bool) {
		t.Helper()
		if got := d.Owns(block); got != want {
			t.Errorf("owns %t, want %t", got, want)
		}
	}
	owns(false)
	select {
	case <-found:
	default:
		t.Error("no notification about the other host")
	}
	now = now.Add(50 * time.Second)
	block.Claim = "2"
	owns(false) // it is alive
	now = now.Add(50 * time.Second)
	owns(false)
	now = now.Add(10 * time.Second)
	owns(true)
	if !d.Any() || !d.ResyncDue() {
		t.Error("the other host was forgotten before its blocks were taken over")
	}
	now = now.Add(15 * time.Second)
	if d.MarkRenewed(); d.Any() {
		t.Error("the other host was not forgotten")
	}
	block.MachineID = "m1"
	owns(true)
	block.Node = "b"
	owns(false)
}

// TestOwnershipLost: an unknown claim with this host's machine ID may be a delayed request of an earlier agent, but not
// again and again; a claim that this agent wrote is its own.
func TestOwnershipLost(t *testing.T) {
	d := New(Config{
		Node: "a", MachineID: "m1", GoneAfter: time.Minute, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Found: notify.New(),
	})
	block := model.AddressBlock{
		Pool: "p", CIDR: netip.MustParsePrefix("10.0.0.0/28"), Node: "a", MachineID: "m1", Claim: "own",
	}
	d.RecordClaim("own")
	for range 2 * maxMismatches {
		if d.OwnershipLost(block.CIDR, block) {
			t.Fatal("lost by a claim that this agent wrote")
		}
	}
	block.Claim = "unknown"
	for i := range maxMismatches {
		if got := d.OwnershipLost(block.CIDR, block); got != (i == maxMismatches-1) {
			t.Errorf("unknown claim %d: lost %t", i, got)
		}
	}
}
