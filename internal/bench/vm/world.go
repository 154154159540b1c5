// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"

	"github.com/weft-net/weft/internal/bench/byhand"
	"github.com/weft-net/weft/internal/bench/part"
	"github.com/weft-net/weft/internal/bench/path"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// The host ends of the two pods.
const (
	machineLink = "cali0000000000a"
	peerLink    = "cali0000000000b"
)

// The pod with the machine has the first address, its peer the second one. Behind them are addresses that the node
// knows and no stack has: what is sent there is not answered.
func machineAddr() netip.Addr { return netip.AddrFrom4([4]byte{10, 32, 0, 1}) }
func peerAddr() netip.Addr    { return netip.AddrFrom4([4]byte{10, 32, 0, 2}) }
func behindPeer() netip.Addr  { return netip.AddrFrom4([4]byte{10, 32, 0, 3}) }
func behindPod() netip.Addr   { return netip.AddrFrom4([4]byte{10, 32, 0, 4}) }

// nobody is the hardware address of those that nobody has.
func nobody() net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, 9} }

// world is one design while it is up.
type world struct {
	design
	dir  string
	node *netns.NS
	// wire is the node's end of what leads to the machine.
	wire string
	// ends of the network: the machine's pod, its peer, and the guest, which is the pod where there is no machine.
	pod, peer, guest *netns.NS
	card             *part.Process
	// from and to are the ends of the load from the guest to the peer, and of that to the guest.
	from, to *path.Ends
	// sent are the frames of the machine, taken those of its peer, and as the node hands them on.
	sent, taken, handed []byte
}

func (w *world) up(ctx context.Context, self string) error {
	if err := w.lay(); err != nil {
		return err
	}
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close() // the card has them
		}
	}()
	tap, err := w.machine(ctx)
	if err != nil {
		return err
	}
	files = append(files, tap)
	for _, of := range []struct {
		ns   *netns.NS
		link string
	}{{w.node, w.wire}, {w.peer, "eth0"}} {
		f, err := packetSocket(of.ns, of.link, true)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	argv := []string{self, "part", "card"}
	if w.guest != w.pod {
		own, err := openTap(w.guest, "eth0")
		if err != nil {
			return err
		}
		files, argv = append(files, own), append(argv, "--guest")
	}
	if w.card, err = part.StartWith(w.node, 0, files, argv...); err != nil {
		return err
	}
	var ready outcome
	if err := w.card.Hear(&ready); err != nil {
		return err
	}
	if w.from, err = path.JoinOn(self, w.guest, w.peer, peerAddr(), 0); err != nil {
		return err
	}
	w.to, err = path.JoinOn(self, w.peer, w.guest, machineAddr(), 0)
	return err
}

// lay makes the node and the two pods.
func (w *world) lay() error {
	var err error
	if w.node, err = byhand.NewNode(); err != nil {
		return err
	}
	w.wire = machineLink
	for _, p := range []struct {
		ns   **netns.NS
		link string
		addr netip.Addr
	}{{&w.pod, machineLink, machineAddr()}, {&w.peer, peerLink, peerAddr()}} {
		if *p.ns, err = netns.Anonymous(); err != nil {
			return err
		}
		if w.host && p.link == machineLink {
			continue
		}
		if err := byhand.Plug(w.node, *p.ns, p.link, p.addr); err != nil {
			return fmt.Errorf("pod %s: %w", p.addr, err)
		}
	}
	return know(w.node, peerLink, behindPeer(), nobody())
}

// machine makes what the design has in the pod and opens the machine's side of it.
func (w *world) machine(ctx context.Context) (*os.File, error) {
	peer, err := linkOf(w.peer, "eth0")
	if err != nil {
		return nil, err
	}
	if w.binding == "" {
		w.guest = w.pod
		w.sent = frame(byhand.MAC(), nobody(), behindPod(), behindPeer())
		w.taken = frame(byhand.MAC(), peer.Attrs().HardwareAddr, behindPeer(), behindPod())
		w.handed = frame(nobody(), byhand.MAC(), behindPeer(), behindPod())
		if err := know(w.node, w.wire, behindPod(), nobody()); err != nil {
			return nil, err
		}
		return packetSocket(w.pod, "eth0", false)
	}
	n, err := w.phase1(ctx)
	if err != nil {
		return nil, err
	}
	if w.guest, err = netns.Anonymous(); err != nil {
		return nil, err
	}
	at, err := w.place(n)
	if err != nil {
		return nil, err
	}
	w.sent = w.frameOf(at)
	w.taken = frame(byhand.MAC(), peer.Attrs().HardwareAddr, behindPeer(), machineAddr())
	w.handed = frame(at.known, byhand.MAC(), behindPeer(), machineAddr())
	if err := inhabit(w.guest, at); err != nil {
		return nil, err
	}
	return w.open(n)
}

// open is what a hypervisor does.
func (w *world) open(n phase1.Network) (*os.File, error) {
	if w.binding == model.VMMacvtap {
		return openMacvtap(w.pod, n.Device.Target)
	}
	if w.host {
		return openTap(w.node, n.Device.Target)
	}
	return openTap(w.pod, n.Device.Target)
}

// frameOf is what the machine sends, as it writes it.
func (*world) frameOf(at place) []byte {
	return append(make([]byte, vnetHeader), frame(at.gatewayMAC, at.mac, at.addr.Addr(), behindPeer())...)
}

// phase1 brings the machine into the pod.
func (w *world) phase1(ctx context.Context) (phase1.Network, error) {
	if w.host {
		return w.onNode(ctx)
	}
	if w.binding == model.VMMacvtap {
		if err := macvtap(w.pod); err != nil {
			return phase1.Network{}, err
		}
	}
	c := phase1.Config{Dir: w.dir, Log: slog.New(slog.DiscardHandler)}
	r, err := c.Start(ctx, w.pod, "pod", input(w.design))
	if err != nil {
		return phase1.Network{}, err
	}
	return r.Networks[0], nil
}

// input is what the planner is told of the machine.
func input(d design) plan.Input {
	nic := model.VMInterface{Name: "default", Binding: d.binding, Model: "virtio"}
	nic.Network = model.VMNetwork{Name: "default", Primary: true, Pod: true, CIDR4: netip.MustParsePrefix("10.0.2.0/24")}
	if d.binding == model.VMMacvtap {
		nic.PodLink = macvtapLink
	}
	vm := model.VM{Namespace: "bench", Name: "vm", Path: "spec", Hostname: "vm", Interfaces: []model.VMInterface{nic}}
	return plan.Input{VM: vm, SoftChecksums: d.soft, TrustGuest: !d.guarded, Join: d.how}
}

func (w *world) close() {
	for _, e := range []*path.Ends{w.from, w.to} {
		if e != nil {
			e.Close()
		}
	}
	if w.card != nil {
		w.card.Stop()
	}
	if w.guest == w.pod {
		w.guest = nil
	}
	for _, ns := range []*netns.NS{w.guest, w.peer, w.pod, w.node} {
		if ns != nil {
			_ = ns.Close()
		}
	}
}
