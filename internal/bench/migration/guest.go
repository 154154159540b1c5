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

// guest is the VM in one of its pods.
type guest struct {
	pod  *pod
	qemu *qemu.VM
	stop context.CancelFunc
	done chan error
}

// bootTime limits boot and migration: the guest is emulated, perhaps on a busy host.
const bootTime = 150 * time.Second

// input returns the planner's input for a VM with one interface on the pod network.
func input(name string, binding model.VMBinding) plan.Input {
	return plan.Input{VM: model.VM{
		Namespace: namespace, Name: name, Path: "spec", Hostname: name,
		Interfaces: []model.VMInterface{{
			Name: "default", Binding: binding, Model: "virtio",
			Network: model.VMNetwork{
				Name: "default", Primary: true, Pod: true,
				CIDR4: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 2, 0}), 24), CIDR6: netip.MustParsePrefix("fd10:0:2::/120"),
			},
		}},
	}}
}

// start runs the VM in a pod; incoming is the URI of an incoming migration, empty to boot.
func (w *world) start(ctx context.Context, p *pod, binding model.VMBinding, incoming string) (*guest, error) {
	h, err := host.Open(ctx, host.Config{Socket: p.node.socket(), Log: w.cfg.Log})
	if err != nil {
		return nil, err
	}
	g := &guest{pod: p, done: make(chan error, 1)}
	runCtx, stop := context.WithCancel(ctx)
	g.stop = stop
	up := make(chan struct{})
	c := launch.Config{
		Dir: w.path("vm-" + p.name), Pod: host.Pod{NS: p.ns, ID: p.name}, Host: h, Input: input(p.vm, binding),
		WeftGuest: w.cfg.Speaker, Log: w.cfg.Log,
		QEMU: qemu.Config{
			Kernel: w.cfg.Image.Kernel, Initrd: w.cfg.Image.Initrd, Memory: guestimage.MinMemory, Incoming: incoming,
		},
		Hypervisor: func(ctx context.Context, c qemu.Config) (_ launch.VM, err error) {
			for _, d := range c.Devices {
				if c.Taps[d.Name], err = qemu.OpenTap(p.ns, d); err != nil { // the caller closes the map's files
					return nil, err
				}
			}
			g.qemu, err = qemu.Start(ctx, c)
			return g.qemu, err
		},
		OnRunning: func(launch.Status) { close(up) },
		Status:    launch.Status{Namespace: namespace, Name: p.vm},
	}
	go func() {
		err := c.Run(runCtx)
		g.done <- errors.Join(err, h.Close())
	}()
	select {
	case <-up:
		return g, nil
	case err := <-g.done:
		stop()
		return nil, fmt.Errorf("VM on node %s: %w", p.node.name, err)
	}
}

// end kills the VM in this pod and detaches the pod.
func (g *guest) end(ctx context.Context) error {
	if g.qemu != nil {
		g.qemu.Kill()
	}
	g.stop()
	<-g.done // an error is expected: it was killed
	return g.pod.end(ctx)
}

// awaitBoot waits until the guest has its address, and runs commands in it.
func (g *guest) awaitBoot(ctx context.Context, commands ...string) error {
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

// migrate migrates the VM to another pod, whose hypervisor waits for it, and returns when it resumed there.
func (g *guest) migrate(ctx context.Context, to *guest) (resumed time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	return qemu.Migrate(ctx, g.qemu.Dir, to.qemu.Dir)
}
