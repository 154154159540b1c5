// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/vm/host"
)

// weftGuest starts weft-guest in a pod; it ends with the test.
func (w *world) weftGuest(pod *netns.NS) *exec.Cmd {
	w.t.Helper()
	cmd := exec.Command(filepath.Join(os.Getenv(binVar), "weft-guest"))
	cmd.Stderr = w.t.Output()
	if err := pod.Do(cmd.Start); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { ended(cmd) })
	return cmd
}

func ended(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// offered asks for an address in a guest until there is an answer.
func offered(t *testing.T, guest *netns.NS, mac string) string {
	t.Helper()
	var conn net.PacketConn
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		return errors.Join(raw.Control(func(fd uintptr) {
			err = errors.Join(unix.BindToDevice(int(fd), "eth0"),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1))
		}), err)
	}}
	err := guest.Do(func() (err error) {
		conn, err = config.ListenPacket(t.Context(), "udp4", ":68")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	hw, err := net.ParseMAC(mac)
	if err != nil {
		t.Fatal(err)
	}
	discover, err := dhcpv4.New(dhcpv4.WithHwAddr(hw), dhcpv4.WithMessageType(dhcpv4.MessageTypeDiscover),
		dhcpv4.WithBroadcast(true))
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 9000)
	for range 60 {
		if _, err := conn.WriteTo(discover.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: 67}); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		n, _, err := conn.ReadFrom(buf)
		if err != nil {
			continue
		}
		if offer, err := dhcpv4.FromBytes(buf[:n]); err == nil {
			return offer.YourIPAddr.String()
		}
	}
	t.Fatal("no answer")
	return ""
}

// twoNetworks is a VM with an interface on each of the pod's two networks.
func twoNetworks() plan.Input {
	in := vmInput(model.VMMasquerade)
	in.VM.Interfaces = append(in.VM.Interfaces, model.VMInterface{
		Name: "blue", Index: 1, Binding: model.VMBridge, Model: "virtio", PodLink: "net1",
		Network: model.VMNetwork{Name: "blue", Index: 1, Definition: "blue"},
	})
	return in
}

// TestVMIsServed: a guest gets its address from weft-guest even if that or the agent was killed and restarted; a
// plugged interface is served at once, and an unplugged one is gone.
func TestVMIsServed(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	w.start()
	nettest.Need(t, "tap")
	bridge := func(name, device, subnet string) string {
		return fmt.Sprintf(`{"name":%q,"type":"bridge","bridge":%q,"isGateway":true,"ipam":%s}`, name, device, w.ipam(subnet))
	}
	list, ns := w.list("1.1.0", bridge("red", "br0", "10.8.0.0/16"), bridge("blue", "br1", "10.18.0.0/16")),
		nettest.NS(t, "pod")
	if _, err := w.add(list, "c1", ns); err != nil {
		t.Fatal(err)
	}
	helper := w.weftGuest(ns) // before there is anything to be served
	record := w.startVM(ns, vmInput(model.VMMasquerade))
	guest, far := nettest.NS(t, "guest"), nettest.NS(t, "blue")
	mac := record.Networks[0].Device.MAC
	nettest.Relay(t, ns, "tap0", false, guest, mac)
	want := func(when, address string, in *netns.NS, mac string) {
		t.Helper()
		if got := offered(t, in, mac); got != address {
			t.Errorf("%s: offered %s, want %s", when, got, address)
		}
	}
	want("at first", "10.0.2.2", guest, mac)
	w.kill()
	want("without an agent", "10.0.2.2", guest, mac)
	w.start()
	ended(helper)
	_ = w.weftGuest(ns)
	want("with a new agent and a new weft-guest", "10.0.2.2", guest, mac)

	record = w.startVM(ns, twoNetworks())
	plugged := record.Networks[1].Device
	nettest.Relay(t, ns, plugged.Target, false, far, plugged.MAC)
	want("plugged", "10.18.0.2", far, plugged.MAC)
	want("beside one that was plugged", "10.0.2.2", guest, mac)
	out := twoNetworks()
	out.VM.Interfaces[1].Absent = true
	if record = w.startVM(ns, out); len(record.Networks) != 1 {
		t.Errorf("unplugged: %+v", record)
	}
	want("beside one that was unplugged", "10.0.2.2", guest, mac)
	if err := w.del(list, "c1", ns); err != nil {
		t.Error(err)
	}
	w.noVMs()
}

// TestFDServerKilledAtEveryStep: a guest gets its address in the end, even if the agent dies at any step of passing
// sockets, or weft-guest dies at any time.
func TestFDServerKilledAtEveryStep(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	w.start()
	_, ns := w.attached("bridge")
	record, guest := w.startVM(ns, vmInput(model.VMMasquerade)), nettest.NS(t, "guest")
	mac := record.Networks[0].Device.MAC
	nettest.Relay(t, ns, "tap0", false, guest, mac)
	kills := 0
	for k := 0; ; k++ {
		if err := os.WriteFile(w.path("step"), []byte(strconv.Itoa(k)), 0o600); err != nil {
			t.Fatal(err)
		}
		helper := w.weftGuest(ns)
		died := k < 4 && !w.alive(true)
		_ = os.Remove(w.path("step"))
		if died {
			kills++
			w.start()
		}
		if got := offered(t, guest, mac); got != "10.0.2.2" {
			t.Errorf("step %d: offered %s", k, got)
		}
		ended(helper)
		if !died {
			break
		}
	}
	if kills != 4 {
		t.Errorf("%d kills", kills)
	}
	for i := range 20 {
		helper := w.weftGuest(ns)
		time.Sleep(time.Duration(i) * time.Millisecond) // the moment of the kill
		ended(helper)
	}
	_ = w.weftGuest(ns)
	if got := offered(t, guest, mac); got != "10.0.2.2" {
		t.Errorf("offered %s", got)
	}
}

// TestVMOfAnotherPod: a pod that the agent has not attached may have a VM; it ends with the pod.
func TestVMOfAnotherPod(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Need(t, "tap")
	w := newWorld(t)
	w.start()
	ns, far := nettest.NS(t, "pod"), nettest.NS(t, "far")
	nettest.Run(t, far, "ip", "link", "add", "wire", "type", "veth", "peer", "name", "eth0", "netns", ns.Path())
	nettest.Run(t, ns, "ip", "addr", "add", "10.1.0.2/24", "dev", "eth0")
	nettest.Run(t, ns, "ip", "link", "set", "eth0", "up")
	w.startVM(ns, vmInput(model.VMMasquerade))
	w.kill()
	w.start()
	if _, found, err := w.vms().Find(w.ctx(), vmKey); err != nil || !found {
		t.Fatalf("%v %v", found, err)
	}
	w.kill()
	if err := netns.Remove(ns.Path()); err != nil {
		t.Fatal(err)
	}
	w.start()
	if _, found, err := w.vms().Find(w.ctx(), vmKey); err != nil || found {
		t.Errorf("%v %v", found, err)
	}
	w.noVMs()
}

// TestVMWithoutAgent: after an agent was killed no other program does its work; without any agent the command
// does.
func TestVMWithoutAgent(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	w.start()
	w.kill()
	c := host.Config{Socket: w.socket(), Dir: w.path("vm"), Log: slog.New(slog.DiscardHandler)}
	if _, err := host.Open(w.ctx(), c); err == nil ||
		!strings.Contains(err.Error(), "connection refused (start the agent; without one, set no agent socket") {
		t.Errorf("%v", err)
	}
	w.start()
	w.stop()
	h, err := host.Open(w.ctx(), c)
	if _, local := h.(*host.Local); !local {
		t.Errorf("%T, %v", h, err)
	}
}

// TestVMRefused: what the agent refuses has its code and its field here, too.
func TestVMRefused(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	w.start()
	ns := nettest.NS(t, "pod")
	in := vmInput(model.VMBridge)
	in.VM.Interfaces[0].Network.CIDR4 = netip.Prefix{}
	_, err := w.vms().Start(w.ctx(), host.Pod{NS: ns}, in)
	var fault *model.Error
	want := `spec.domain.devices.interfaces[0].name: network "default": the pod has no link eth0 (the pod must be attached to the network first)`
	if !errors.As(err, &fault) || fault.Code != model.CodeInvalidEnv || err.Error() != want {
		t.Errorf("\n got %v\nwant %s", err, want)
	}
	_, taken := w.attached("bridge")
	var other net.Listener
	err = taken.Do(func() (err error) {
		other, err = net.ListenUnix("unix", &net.UnixAddr{Name: host.GuestSocket, Net: "unix"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	before := inPod(t, taken)
	_, err = w.vms().Start(w.ctx(), host.Pod{NS: taken}, vmInput(model.VMBridge))
	if err == nil ||
		!strings.Contains(err.Error(), "socket @weft-guest: another process serves weft-guest there already") {
		t.Errorf("%v", err)
	}
	if diff := w.reads(func() string { return inPod(t, taken) }, before); diff != "" {
		t.Error(diff)
	}
	if _, err := w.vms().Start(w.ctx(), host.Pod{NS: w.node}, in); err == nil ||
		!strings.Contains(err.Error(), "the network namespace of the node itself") {
		t.Errorf("in the node's own namespace: %v", err)
	}
	w.noVMs()
}
