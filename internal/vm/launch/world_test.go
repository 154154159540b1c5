// SPDX-License-Identifier: Apache-2.0

package launch_test

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/state"
	"github.com/weft-net/weft/internal/vm/guestimage"
	"github.com/weft-net/weft/internal/vm/host"
	"github.com/weft-net/weft/internal/vm/launch"
	"github.com/weft-net/weft/internal/vm/phase1"
	"github.com/weft-net/weft/internal/vm/qemu"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainWithPrograms(m)) }

// bootTime is the timeout for a guest: on a busy host emulation is slow.
const bootTime = 150 * time.Second

// world is a pod whose eth0 is connected to a namespace far.
type world struct {
	t        *testing.T
	pod, far *netns.NS
	owner    uint32
	dir      string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		nettest.SkipMissing(t, "there is no qemu-system-x86_64")
	}
	nettest.Need(t, "tap")
	w := &world{t: t, pod: nettest.NS(t, "pod"), far: nettest.NS(t, "far"), dir: filepath.Join(t.TempDir(), "machine")}
	if b, err := os.ReadFile("/proc/self/uid_map"); err == nil && strings.Fields(string(b))[2] != "1" {
		w.owner = 107
	}
	w.ip(w.far, "link add wire type veth peer name eth0 netns "+w.pod.Path())
	w.ip(w.pod, "link set eth0 address "+state.SeedMAC("eth0").String()+" mtu 1450")
	w.ip(w.far, "link set wire mtu 1450 up")
	w.ip(w.pod, "link set eth0 up")
	w.ip(w.pod, "link set lo up")
	return w
}

func (w *world) ip(ns *netns.NS, line string) {
	w.t.Helper()
	nettest.IP(w.t, ns, line)
}

// flannel configures the pod's link as flannel does, routed as Calico does.
func (w *world) flannel() { nettest.ConfigureSubnet(w.t, w.pod, w.far) }
func (w *world) routed()  { nettest.ConfigureRouted(w.t, w.pod, w.far) }

// image is the image that the VMs boot.
func image(t *testing.T) guestimage.Image {
	t.Helper()
	c, err := guestimage.DefaultConfig(nettest.Programs(t))
	if err != nil {
		nettest.SkipMissing(t, err.Error())
	}
	i, err := c.Build(t.Context())
	if err != nil {
		nettest.SkipMissing(t, err.Error())
	}
	return i
}

// input returns a VM with one interface on the pod's network.
func (w *world) input(binding model.VMBinding) plan.Input {
	return plan.Input{VM: model.VM{
		Namespace: "shop", Name: "vm1", Path: "spec", Owner: w.owner, Hostname: "vm1",
		Interfaces: []model.VMInterface{{
			Name: "default", Binding: binding, Model: "virtio",
			Network: model.VMNetwork{
				Name: "default", Primary: true, Pod: true, CIDR4: netip.MustParsePrefix("10.0.2.0/24"),
				CIDR6: netip.MustParsePrefix("fd10:0:2::/120"),
			},
		}},
	}, DNS: model.DNS{Nameservers: []string{"10.96.0.10"}}}
}

func (w *world) config(in plan.Input) launch.Config {
	w.t.Helper()
	log := slog.New(slog.DiscardHandler)
	i := image(w.t)
	return launch.Config{
		Dir: w.dir, Pod: host.Pod{NS: w.pod}, Input: in, WeftGuest: filepath.Join(nettest.Programs(w.t), "weft-guest"),
		Log: log, Grace: 60 * time.Second,
		Host:   host.NewLocal(phase1.Config{Dir: filepath.Join(w.t.TempDir(), "records"), Log: log}),
		QEMU:   qemu.Config{Kernel: i.Kernel, Initrd: i.Initrd, Memory: guestimage.MinMemory},
		Status: launch.Status{Namespace: in.VM.Namespace, Name: in.VM.Name, Dir: w.dir},
	}
}

// running is a running VM.
type running struct {
	*world
	*qemu.Console
	status launch.Status
	stop   func() error
}

// run starts a VM and waits until it runs.
func (w *world) run(c launch.Config) *running {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	up, done := make(chan launch.Status, 1), make(chan error, 1)
	c.OnRunning = func(s launch.Status) { up <- s }
	go func() { done <- c.Run(ctx) }()
	r := &running{world: w}
	ended := false
	r.stop = func() error {
		if ended {
			return nil
		}
		ended = true
		cancel()
		return <-done
	}
	w.t.Cleanup(func() {
		if err := r.stop(); err != nil {
			w.t.Error(err)
		}
	})
	select {
	case r.status = <-up:
	case err := <-done:
		ended = true
		w.t.Fatal(err)
	}
	var err error
	if r.Console, err = qemu.OpenConsole(ctx, w.dir); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(r.Close)
	return r
}

// await waits for a line on the guest's console.
func (r *running) await(prefix string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), bootTime)
	defer cancel()
	line, err := r.Await(ctx, prefix)
	if err != nil {
		r.t.Fatal(err)
	}
	return line
}

// exec runs a command in the guest.
func (r *running) exec(command string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), bootTime)
	defer cancel()
	out, err := r.Run(ctx, command)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}
