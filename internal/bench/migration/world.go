// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// world is a running cluster.
type world struct {
	cfg   Config
	dir   string
	store *dir.Store
	wire  *netns.NS
	nodes []*node
	// undo is executed in reverse order.
	undo []func() error
}

// namespace is that of the VM's pods; its peer is in another one.
const namespace, vmName = "vms", "db"

// configuration is the agents' configuration file. The encapsulation is the cluster's, because a pool supports only
// vxlan, ipip and none.
const configuration = `install: {confDir: %q}
network: {mode: cluster, encapsulation: %s, wireguardKeyFile: %q, pools: [{cidr: 10.77.0.0/24, blockSize: 28}]}
`

// policyText denies all traffic of the VM except for that of the measurement.
const policyText = `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"namespace":"vms","name":"db"},"spec":{
"podSelector":{},"policyTypes":["Ingress","Egress"],
"ingress":[{"ports":[{"protocol":"TCP","port":7},{"protocol":"TCP","port":19}]}],
"egress":[{"ports":[{"protocol":"UDP","port":9000}]}]}}`

// newWorld creates the wire, the nodes and their agents.
func newWorld(ctx context.Context, cfg Config, nodes int) (w *world, err error) {
	w = &world{cfg: cfg}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.dir, err = os.MkdirTemp("", "weft-migration-"); err != nil {
		return w, err
	}
	w.undo = append(w.undo, func() error { return os.RemoveAll(w.dir) })
	if err := os.Mkdir(w.path("store"), 0o755); err != nil {
		return w, err
	}
	if w.store, err = dir.Open(w.path("store")); err != nil {
		return w, err
	}
	if w.wire, err = w.namespace("wire"); err != nil {
		return w, err
	}
	if err := w.wire.Do(addBridge); err != nil {
		return w, fmt.Errorf("wire: %w", err)
	}
	if err := w.objects(ctx, nodes); err != nil {
		return w, err
	}
	for i := range nodes {
		n, err := w.node(ctx, i)
		if err != nil {
			return w, err
		}
		w.nodes = append(w.nodes, n)
	}
	return w, nil
}

func (w *world) path(elem ...string) string {
	return filepath.Join(append([]string{w.dir}, elem...)...)
}

// close removes everything.
func (w *world) close() error {
	var errs []error
	for _, f := range slices.Backward(w.undo) {
		errs = append(errs, f())
	}
	w.undo = nil
	return errors.Join(errs...)
}

// namespace creates a network namespace with a path.
func (w *world) namespace(name string) (*netns.NS, error) {
	path := w.path(name + ".ns")
	ns, err := netns.New(path)
	if err != nil {
		return nil, err
	}
	w.undo = append(w.undo, func() error { return errors.Join(ns.Close(), netns.Remove(path)) })
	return ns, ns.Do(func() error { return setUpLink("lo") })
}

func setUpLink(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

func addBridge() error {
	b := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "wire"}}
	if err := netlink.LinkAdd(b); err != nil {
		return err
	}
	return setUpLink("wire")
}

// nodeAddr returns a node's address.
func nodeAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, 77, byte(i + 1)}) }

// connect connects a node to the wire.
func (w *world) connect(i int, ns *netns.NS) error {
	port := fmt.Sprintf("n%d", i+1)
	err := w.wire.Do(func() error {
		l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: port}, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns.Fd())}
		if err := netlink.LinkAdd(l); err != nil {
			return err
		}
		wire, err := netlink.LinkByName("wire")
		if err != nil {
			return err
		}
		own, err := netlink.LinkByName(port)
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetMaster(own, wire), netlink.LinkSetUp(own))
	})
	if err != nil {
		return fmt.Errorf("node %d: %w", i+1, err)
	}
	return ns.Do(func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr(nodeAddr(i).String() + "/24")
		if err != nil {
			return err
		}
		// Without a default route the node does not respond to ARP for a pod's gateway by proxy ARP, which a guest on a
		// bridge needs.
		route := &netlink.Route{LinkIndex: l.Attrs().Index, Gw: nodeAddr(253).AsSlice()}
		return errors.Join(netlink.AddrAdd(l, addr), netlink.LinkSetUp(l), netlink.RouteAdd(route))
	})
}

// objects creates the objects of the cluster.
func (w *world) objects(ctx context.Context, nodes int) error {
	for i := range nodes {
		o, err := store.NodeObject(model.Node{Name: fmt.Sprintf("n%d", i+1), Addrs: []netip.Addr{nodeAddr(i)}})
		if err == nil {
			_, err = w.store.Create(ctx, o)
		}
		if err != nil {
			return err
		}
	}
	for _, text := range []string{
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"vms"}}`,
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"peers"}}`, policyText,
	} {
		o, err := store.NewObject([]byte(text))
		if err == nil {
			_, err = w.store.Create(ctx, o)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// createPod creates a scheduled pod object.
func (w *world) createPod(ctx context.Context, p pod) error {
	annotations := ""
	if p.vm != "" {
		annotations = `,"annotations":{"kubevirt.io/domain":"` + p.vm + `"`
		if p.incoming {
			annotations += `,"kubevirt.io/migrationJobName":"` + p.name + `"`
		}
		annotations += "}"
	}
	o, err := store.NewObject(
		fmt.Appendf(
			nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":%q,"name":%q,"uid":%q%s},"spec":{"nodeName":%q}}`,
			p.namespace, p.name, p.name, annotations, p.node.name))
	if err == nil {
		_, err = w.store.Create(ctx, o)
	}
	if err != nil || !p.incoming {
		return err
	}
	// An AddressMove names the target pod of the migration.
	o, err = store.AddressMoveObject(store.Object{}, model.AddressMove{
		Namespace: p.namespace, Name: p.name, VM: p.vm, Addrs: []netip.Addr{p.addr}, Target: p.node.name,
		TargetPod: p.name,
	})
	if err == nil {
		_, err = w.store.Create(ctx, o)
	}
	return err
}

// until waits until ok returns true, for a minute at most.
func until(ctx context.Context, name string, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", name, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}
