// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/mesh"
)

const (
	backendHostGW = "host-gw"
	backendVXLAN  = "vxlan"
)

// applier brings a node's kernel to the state of the cluster.
type applier interface {
	apply(ctx context.Context, c *model.Cluster) (time.Duration, error)
	// messages returns the number of rtnetlink messages so far, in both directions.
	messages() int
}

// meshNode is a node of the benchmark: a namespace with one uplink, on which all peers are neighbors.
type meshNode struct {
	ns      *netns.NS
	backend string
	conn    *kernel.Conn
	applier applier
	newMACs int
}

func newMeshNode(backend, way string) (*meshNode, error) {
	ns, err := netns.Anonymous()
	if err != nil {
		return nil, err
	}
	w := &meshNode{ns: ns, backend: backend}
	if err := ns.Do(addMeshUplink); err != nil {
		w.close()
		return nil, fmt.Errorf("uplink: %w", err)
	}
	switch way {
	case wayWeft:
		if w.conn, err = kernel.Dial(ns); err != nil {
			w.close()
			return nil, err
		}
		w.applier = &weftApplier{conn: w.conn, reconciler: reconcile.New(reconcile.Config{
			Host: w.conn, NS: ns, Mesh: mesh.Config{Backend: backend}, Log: slog.New(slog.DiscardHandler), Now: time.Now,
			After: time.After,
		})}
	default:
		w.applier = &sequentialApplier{ns: ns, backend: backend, listRoutes: way == wayListed}
	}
	return w, nil
}

// addMeshUplink creates the node's uplink. Its veth peer is in the same namespace and receives nothing.
func addMeshUplink() error {
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0"}, PeerName: "up1"}); err != nil {
		return err
	}
	for _, name := range []string{"lo", "up0", "up1"} {
		l, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		if err == nil && name == "up0" {
			err = netlink.AddrAdd(l, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(nodeAddr(0), 12))})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// close deletes the links before the namespace, so that the kernel does the work now and not during the next sample.
func (w *meshNode) close() {
	_ = w.ns.Do(func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			if l.Attrs().Name != "lo" {
				err = errors.Join(err, netlink.LinkDel(l))
			}
		}
		return err
	})
	if w.conn != nil {
		_ = w.conn.Close()
	}
	_ = w.ns.Close()
}

func nodeAddr(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{172, 16 + byte((i+1)>>16), byte((i + 1) >> 8), byte(i + 1)})
}

func podCIDR(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
}
func peerName(i int) string { return fmt.Sprintf("node-%05d", i) }
func vtep(i, serial int) [6]byte {
	return [6]byte{0x0a, byte(serial >> 8), byte(serial), 0, byte(i >> 8), byte(i)}
}

func vtepText(mac [6]byte) string {
	return fmt.Sprintf(`{"VNI":1,"VtepMAC":"%02x:%02x:%02x:%02x:%02x:%02x"}`, mac[0], mac[1], mac[2], mac[3],
		mac[4], mac[5])
}

// cluster returns the state of a cluster of the node and its peers.
func (w *meshNode) cluster(peers int) *model.Cluster {
	c := &model.Cluster{Self: peerName(0)}
	for i := range peers + 1 {
		c.Nodes = append(c.Nodes, model.Node{
			Name: peerName(i), Addrs: []netip.Addr{nodeAddr(i)}, PodCIDRs: []netip.Prefix{podCIDR(i)},
			Published: &model.Published{Backend: w.backend, Data: vtepText(vtep(i, 0)), Addrs: []netip.Addr{nodeAddr(i)}},
		})
	}
	return c
}

// nftBytes returns the size of the requests to nft and their answers so far.
func (w *meshNode) nftBytes() int64 {
	if w.conn == nil {
		return 0
	}
	return w.conn.NftBytes()
}

// changeLastMAC assigns a new MAC address to the last peer.
func (w *meshNode) changeLastMAC(c *model.Cluster) {
	w.newMACs++
	last := len(c.Nodes) - 1
	p := *c.Nodes[last].Published
	p.Data = vtepText(vtep(last, w.newMACs))
	c.Nodes[last].Published = &p
}

// peerRoutes returns the number of routes to peers, as read by a netlink library other than weft's.
func (w *meshNode) peerRoutes() (int, error) {
	n := 0
	err := w.ns.Do(func() error {
		routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
		for _, r := range routes {
			if r.Gw != nil {
				n++
			}
		}
		return err
	})
	return n, err
}

// weftApplier is weft's reconciler.
type weftApplier struct {
	conn       *kernel.Conn
	reconciler *reconcile.Reconciler
}

func (a *weftApplier) apply(ctx context.Context, c *model.Cluster) (time.Duration, error) {
	start := time.Now()
	_, err := a.reconciler.Once(ctx, c)
	return time.Since(start), err
}

func (a *weftApplier) messages() int { return a.conn.Messages() }
