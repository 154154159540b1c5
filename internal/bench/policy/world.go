// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/bench/baseline"
	"github.com/weft-net/weft/internal/bench/path"
	"github.com/weft-net/weft/internal/netns"
)

// The host interfaces of the two pods.
const (
	clientLink = "cali0000000000a"
	serverLink = "cali0000000000b"
)

func clientAddr() netip.Addr { return netip.AddrFrom4([4]byte{10, 32, 0, 1}) }
func serverAddr() netip.Addr { return netip.AddrFrom4([4]byte{10, 32, 0, 2}) }

// world is the node of one engine in one cell.
type world struct {
	engine engine
	cell   Cell
	node   *netns.NS
	pods   []*netns.NS
	load   *path.Pair
}

// setUp creates the node and its two pods, programs the engine, and starts client and server.
func (w *world) setUp(self string) error {
	var err error
	if w.node, err = baseline.NewNode(); err != nil {
		return err
	}
	for _, p := range []struct {
		link string
		addr netip.Addr
	}{{clientLink, clientAddr()}, {serverLink, serverAddr()}} {
		ns, err := netns.Anonymous()
		if err != nil {
			return err
		}
		w.pods = append(w.pods, ns)
		if err := baseline.AddPod(w.node, ns, p.link, p.addr); err != nil {
			return fmt.Errorf("pod %s: %w", p.addr, err)
		}
	}
	if err := w.engine.program(w.node, w.cell); err != nil {
		return fmt.Errorf("program: %w", err)
	}
	w.load, err = path.StartPair(self, w.pods[0], w.pods[1], serverAddr())
	return err
}

func (w *world) close() {
	if w.load != nil {
		w.load.Close()
	}
	w.engine.close()
	for _, ns := range append(w.pods, w.node) {
		if ns != nil {
			_ = ns.Close()
		}
	}
}
