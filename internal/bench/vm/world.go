// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"

	"github.com/weft-net/weft/internal/bench/baseline"
	"github.com/weft-net/weft/internal/bench/path"
	"github.com/weft-net/weft/internal/bench/subprocess"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// The host interfaces of the two pods.
const (
	vmLink   = "cali0000000000a"
	peerLink = "cali0000000000b"
)

// vmAddr is the address of the VM's pod; its peer has the second one. The addresses behind them have neighbor entries on
// the node, but no network stack, so nothing responds to frames that are sent there.
func vmAddr() netip.Addr     { return netip.AddrFrom4([4]byte{10, 32, 0, 1}) }
func peerAddr() netip.Addr   { return netip.AddrFrom4([4]byte{10, 32, 0, 2}) }
func behindPeer() netip.Addr { return netip.AddrFrom4([4]byte{10, 32, 0, 3}) }
func behindPod() netip.Addr  { return netip.AddrFrom4([4]byte{10, 32, 0, 4}) }

// unusedMAC is the MAC address of the addresses without a network stack.
func unusedMAC() net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, 9} }

// world is a running design.
type world struct {
	design
	dir  string
	node *netns.NS
	// hostLink is the VM's host interface.
	hostLink string
	// pod is the VM's pod. guest is the pod if there is no VM.
	pod, peer, guest *netns.NS
	nic              *subprocess.Process
	// outbound is the load from the guest to the peer, inbound from the peer to the guest.
	outbound, inbound *path.Pair
	// fromVM is the frame of the VM, fromPeer that of its peer, and fromNode the same as the node forwards it.
	fromVM, fromPeer, fromNode []byte
}

func (w *world) setUp(ctx context.Context, self string) error {
	if err := w.addPods(); err != nil {
		return err
	}
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close() // the NIC process has inherited them
		}
	}()
	tap, err := w.setUpVM(ctx)
	if err != nil {
		return err
	}
	files = append(files, tap)
	for _, of := range []struct {
		ns   *netns.NS
		link string
	}{{w.node, w.hostLink}, {w.peer, "eth0"}} {
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
	if w.nic, err = subprocess.StartWith(w.node, 0, files, argv...); err != nil {
		return err
	}
	var ready outcome
	if err := w.nic.Receive(&ready); err != nil {
		return err
	}
	if w.outbound, err = path.StartPairOn(self, w.guest, w.peer, peerAddr(), 0); err != nil {
		return err
	}
	w.inbound, err = path.StartPairOn(self, w.peer, w.guest, vmAddr(), 0)
	return err
}

// addPods creates the node and the two pods.
func (w *world) addPods() error {
	var err error
	if w.node, err = baseline.NewNode(); err != nil {
		return err
	}
	w.hostLink = vmLink
	for _, p := range []struct {
		ns   **netns.NS
		link string
		addr netip.Addr
	}{{&w.pod, vmLink, vmAddr()}, {&w.peer, peerLink, peerAddr()}} {
		if *p.ns, err = netns.Anonymous(); err != nil {
			return err
		}
		if w.hostTap && p.link == vmLink {
			continue
		}
		if err := baseline.AddPod(w.node, *p.ns, p.link, p.addr); err != nil {
			return fmt.Errorf("pod %s: %w", p.addr, err)
		}
	}
	return addNeighbor(w.node, peerLink, behindPeer(), unusedMAC())
}

// setUpVM creates the design's interfaces in the pod and returns the VM's device.
func (w *world) setUpVM(ctx context.Context) (*os.File, error) {
	peer, err := linkOf(w.peer, "eth0")
	if err != nil {
		return nil, err
	}
	if w.binding == "" {
		w.guest = w.pod
		w.fromVM = frame(baseline.MAC(), unusedMAC(), behindPod(), behindPeer())
		w.fromPeer = frame(baseline.MAC(), peer.Attrs().HardwareAddr, behindPeer(), behindPod())
		w.fromNode = frame(unusedMAC(), baseline.MAC(), behindPeer(), behindPod())
		if err := addNeighbor(w.node, w.hostLink, behindPod(), unusedMAC()); err != nil {
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
	guest, err := w.guestNet(n)
	if err != nil {
		return nil, err
	}
	w.fromVM = w.frameFrom(guest)
	w.fromPeer = frame(baseline.MAC(), peer.Attrs().HardwareAddr, behindPeer(), vmAddr())
	w.fromNode = frame(guest.nodeMAC, baseline.MAC(), behindPeer(), vmAddr())
	if err := configureGuest(w.guest, guest); err != nil {
		return nil, err
	}
	return w.openTap(n)
}

// openTap opens the VM's device as a hypervisor does.
func (w *world) openTap(n phase1.Network) (*os.File, error) {
	if w.binding == model.VMMacvtap {
		return openMacvtap(w.pod, n.Device.Target)
	}
	if w.hostTap {
		return openTap(w.node, n.Device.Target)
	}
	return openTap(w.pod, n.Device.Target)
}

// frameFrom returns a frame of the guest to an address behind the peer, with the virtio-net header.
func (*world) frameFrom(guest guestNet) []byte {
	return append(make([]byte, vnetHeader), frame(guest.gatewayMAC, guest.mac, guest.addr.Addr(), behindPeer())...)
}

// phase1 runs phase 1 of the VM in the pod.
func (w *world) phase1(ctx context.Context) (phase1.Network, error) {
	if w.hostTap {
		return w.addHostTap(ctx)
	}
	if w.binding == model.VMMacvtap {
		if err := addMacvtap(w.pod); err != nil {
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

// input returns the planner's input for the VM.
func input(d design) plan.Input {
	nic := model.VMInterface{Name: "default", Binding: d.binding, Model: "virtio"}
	nic.Network = model.VMNetwork{Name: "default", Primary: true, Pod: true, CIDR4: netip.MustParsePrefix("10.0.2.0/24")}
	if d.binding == model.VMMacvtap {
		nic.PodLink = macvtapLink
	}
	vm := model.VM{Namespace: "bench", Name: "vm", Path: "spec", Hostname: "vm", Interfaces: []model.VMInterface{nic}}
	return plan.Input{VM: vm, SoftChecksums: d.softChecksums, TrustGuest: !d.guarded, Join: d.join}
}

func (w *world) close() {
	for _, e := range []*path.Pair{w.outbound, w.inbound} {
		if e != nil {
			e.Close()
		}
	}
	if w.nic != nil {
		w.nic.Stop()
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
