// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// TestFloors: weft-cni gets the links of its pod from the floor's agent, DEL deletes them, and both floors are rows of a
// report.
func TestFloors(t *testing.T) {
	nettest.Need(t, "bridge", "macvlan")
	dir := t.TempDir()
	nettest.Program(t, "weft-cni", filepath.Join(dir, "weft-cni"))
	if err := os.Symlink("weft-cni", filepath.Join(dir, "multus")); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, conf := range []string{
		`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"bridge"},{"type":"bandwidth","capabilities":{"bandwidth":true}}]}`,
		`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"ptp"}]}`,
	} {
		chain, err := ParseChain("x.conflist", []byte(conf))
		if err != nil {
			t.Fatal(err)
		}
		weft := []Impl{{Name: "weft-standalone", BinDir: dir}, {Name: "weft-agent", BinDir: dir, Agent: "/nowhere"}}
		floors := WithFloors(weft, chain, empty)[len(weft):]
		if len(floors) != 2 {
			t.Fatalf("floors %+v", floors)
		}
		report, err := Run(t.Context(), Config{
			Chain: chain, Impls: floors, N: 2, Concurrency: []int{2}, Pods: []int{1}, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		measured := map[string]bool{}
		for _, row := range report.Rows {
			measured[row.Impl+" "+row.Metric] = row.P50 > 0
		}
		for _, want := range []string{
			FloorAgent + " add", FloorAgent + " del", FloorAgent + " gone", FloorStandalone + " add", FloorStandalone + " add_cpu",
		} {
			if !measured[want] {
				t.Errorf("%s is missing: %+v", want, report.Rows)
			}
		}
		if measured[FloorAgent+" add_cpu"] {
			t.Error("the CPU time of an agent in this process was measured")
		}
		volatile := t.TempDir()
		w, err := newWorld(t.Context(), floors[1], chain.withNetworks(2), volatile, volatile)
		if err != nil {
			t.Fatal(err)
		}
		defer w.close()
		p, err := w.newPod()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = p.ns.Close() }()
		_, err = w.add(t.Context(), p, "c1")
		if err := errors.Join(err, up(p.ns, "eth0", "net1", "net2"), up(w.node, "floor0")); err != nil {
			t.Error(err)
		}
	}
}

// up returns an error if a link is missing or down in ns.
func up(ns *netns.NS, names ...string) error {
	return ns.Do(func() error {
		var errs []error
		for _, name := range names {
			l, err := netlink.LinkByName(name)
			if err == nil && l.Attrs().Flags&net.FlagUp == 0 {
				err = errors.New(name + " is down")
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}
