// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/model"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/vm/guestimage"
	"github.com/weft-net/weft/internal/vm/host"
	"github.com/weft-net/weft/internal/vm/launch"
	"github.com/weft-net/weft/internal/vm/qemu"
)

// guest is the machine in one of its pods.
type guest struct {
	pod  *pod
	qemu *qemu.Machine
	stop context.CancelFunc
	done chan error
}

// bootTime is how long a guest may take: it is emulated, perhaps on a machine that is busy.
const bootTime = 150 * time.Second

// input is the machine, with one interface on the pods' network.
func input(binding model.VMBinding) plan.Input {
	return plan.Input{VM: model.VM{
		Namespace: namespace, Name: machineName, Path: "spec", Hostname: machineName,
		Interfaces: []model.VMInterface{{
			Name: "default", Binding: binding, Model: "virtio",
			Network: model.VMNetwork{
				Name: "default", Primary: true, Pod: true,
				CIDR4: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 2, 0}), 24), CIDR6: netip.MustParsePrefix("fd10:0:2::/120"),
			},
		}},
	}}
}

// start runs the machine in a pod; incoming is how it gets its state, empty for one that boots.
func (w *world) start(ctx context.Context, p *pod, incoming string) (*guest, error) {
	h, err := host.Open(ctx, host.Config{Socket: p.node.socket(), Log: w.cfg.Log})
	if err != nil {
		return nil, err
	}
	g := &guest{pod: p, done: make(chan error, 1)}
	life, stop := context.WithCancel(ctx)
	g.stop = stop
	up := make(chan struct{})
	c := launch.Config{
		Dir: w.path("machine-" + p.name), Pod: host.Pod{NS: p.ns, ID: p.name}, Host: h, Input: input(w.cfg.Binding),
		Speaker: w.cfg.Speaker, Log: w.cfg.Log,
		QEMU: qemu.Config{
			Kernel: w.cfg.Image.Kernel, Initrd: w.cfg.Image.Initrd, Memory: guestimage.Memory, Incoming: incoming,
		},
		Hypervisor: func(ctx context.Context, c qemu.Config) (_ launch.Machine, err error) {
			for _, d := range c.Devices {
				if c.Taps[d.Name], err = qemu.Open(p.ns, d); err != nil { // closed by who gave the map
					return nil, err
				}
			}
			g.qemu, err = qemu.Start(ctx, c)
			return g.qemu, err
		},
		Up:    func(launch.Status) { close(up) },
		About: launch.Status{Namespace: namespace, Name: machineName},
	}
	go func() {
		err := c.Run(life)
		g.done <- errors.Join(err, h.Close())
	}()
	select {
	case <-up:
		return g, nil
	case err := <-g.done:
		stop()
		return nil, fmt.Errorf("machine on %s: %w", p.node.name, err)
	}
}

// end ends the machine in this pod, and the pod.
func (g *guest) end(ctx context.Context) error {
	if g.qemu != nil {
		g.qemu.Kill()
	}
	g.stop()
	<-g.done // that it was killed is no news
	return g.pod.end(ctx)
}

// boots waits until the guest has its address, and has it do commands.
func (g *guest) boots(ctx context.Context, commands ...string) error {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	c, err := qemu.OpenConsole(ctx, g.qemu.Dir)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, line := range []string{"weft-guest: READY", "weft-guest: LEASE eth0"} {
		if _, err := c.Await(ctx, line); err != nil {
			return err
		}
	}
	for _, command := range commands {
		if _, err := c.Run(ctx, command); err != nil {
			return err
		}
	}
	return nil
}

// migrate has the machine go on in another pod, where it is awaited, and gives when it began to run there.
func (g *guest) migrate(ctx context.Context, to *guest) (resumed time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	return qemu.Migrate(ctx, g.qemu.Dir, to.qemu.Dir)
}
