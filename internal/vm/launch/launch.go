// SPDX-License-Identifier: Apache-2.0

// Package launch runs a VM in an existing pod, as KubeVirt's virt-launcher and virt-handler do together: it applies the
// VM's network to the pod (phase 1), runs weft-guest, which serves DHCP and RA to the guest, and starts a hypervisor.
// When the VM ends, for any reason, it restores the pod's network.
package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/model"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/vm/host"
	"github.com/weft-net/weft/internal/vm/phase1"
	"github.com/weft-net/weft/internal/vm/qemu"
)

// Config configures one VM and its pod.
type Config struct {
	// Dir is the VM's directory for sockets, the console's log and its status. Run creates it; it must not be shared.
	Dir  string
	Pod  host.Pod
	Host host.Host
	// Input is the input of the VM's plan.
	Input plan.Input
	// WeftGuest is the program weft-guest.
	WeftGuest string
	// QEMU has the boot files and resources; Run sets the name, directory, devices and user.
	QEMU qemu.Config
	// Hypervisor starts the VM; nil is QEMU without libvirt.
	Hypervisor func(ctx context.Context, c qemu.Config) (VM, error)
	// Vhost is opened instead of vhost-net, without a test that it works; "" is vhost-net. For tests.
	Vhost string
	// Grace is the time for a guest to stop after ACPI shutdown.
	Grace time.Duration
	Log   *slog.Logger
	// AttachNetworks, if set, attaches the pod to the networks of a running VM, and detaches it from others.
	AttachNetworks func(ctx context.Context, vm model.VM) error
	// OnRunning, if set, is called when the VM runs.
	OnRunning func(Status)
	// Status has the fields of the VM's status that Run does not set.
	Status Status
}

// VM is a running VM of a hypervisor.
type VM interface {
	Done() <-chan struct{}
	Err() error
	// Stop sends ACPI shutdown, and kills the VM when the context ends; Kill ends it at once.
	Stop(ctx context.Context)
	Kill()
	// SetLink sets the carrier of a network device.
	SetLink(ctx context.Context, d model.VMDevice, up bool) error
	// Plug hot-plugs a network device; Unplug unplugs one, and waits until the guest has released it. The caller closes
	// the files.
	Plug(ctx context.Context, d model.VMDevice, taps, vhost []*os.File) error
	Unplug(ctx context.Context, d model.VMDevice) error
}

// launch is a running VM with its pod.
type launch struct {
	Config
	// key is the VM's: changes of Input.VM need the lock.
	key    string
	record phase1.Record
	status Status
	vm     VM
	// addrs are those of the pod's links, before the guest got them.
	addrs     map[string][]netip.Addr
	weftGuest weftGuest

	// changing serializes changes, and the end of the VM: then ended is set.
	changing sync.Mutex
	ended    bool
}

// Run runs the VM until it ends or the context does; then it stops the VM. It leaves nothing in the pod; the caller
// removes the directory.
func (c Config) Run(ctx context.Context) (err error) {
	l := &launch{Config: c, key: c.Input.VM.Key(), status: c.Status}
	if err := l.makeDir(); err != nil {
		return err
	}
	if l.addrs, err = c.podAddrs(); err != nil {
		return err
	}
	// Cleanup must work after the context has ended.
	cleanup := context.WithoutCancel(ctx)
	l.record, err = c.Host.Start(ctx, c.Pod, c.Input)
	if err != nil {
		return err
	}
	defer func() {
		stopCtx, cancel := context.WithTimeout(cleanup, restoreTime)
		defer cancel()
		err = errors.Join(err, c.Host.Stop(stopCtx, c.Pod, l.key))
	}()
	served, stopServing := l.serve(cleanup, l.key)
	defer stopServing()
	defer l.limitLogs(cleanup, logInterval, maxLogSize)()
	l.weftGuest.problem = make(chan error, 1)
	l.startWeftGuest(cleanup)
	defer l.weftGuest.end()
	if l.vm, err = l.startVM(ctx); err != nil {
		return err
	}
	defer l.vm.Kill()
	l.status.Interfaces = interfaces(l.record, l.addrs)
	if err := l.writePhase(Running); err != nil {
		return err
	}
	running := l.status
	stopChanges, err := l.serveChanges(ctx)
	if err != nil {
		return err
	}
	defer stopChanges()
	if c.OnRunning != nil {
		c.OnRunning(running)
	}
	if over, err := l.wait(ctx, served); over {
		return err
	}
	stopChanges()
	if err := l.writePhase(Stopping); err != nil {
		return err
	}
	stopCtx, cancel := context.WithTimeout(cleanup, c.Grace)
	defer cancel()
	l.vm.Stop(stopCtx)
	return nil
}

// wait waits until the VM ends, and returns over, or until the context ends.
func (l *launch) wait(ctx context.Context, served <-chan error) (over bool, err error) {
	select {
	case <-l.vm.Done():
		if l.vm.Err() != nil {
			return true, fmt.Errorf("VM %s: the hypervisor ended: %w", l.key, l.vm.Err())
		}
		return true, nil
	case err := <-served:
		return true, fmt.Errorf("VM %s: %w", l.key, err)
	case err := <-l.weftGuest.problem:
		return true, fmt.Errorf("VM %s: weft-guest: %w", l.key, err)
	case <-ctx.Done():
		return false, nil
	}
}

// restoreTime is the timeout for restoring the pod's network.
const restoreTime = 30 * time.Second

// makeDir creates the VM's directory.
func (l *launch) makeDir() error {
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return model.Errorf(model.CodeIO, "run as root, or choose another directory with --dir", "VM %s: %w", l.key, err)
	}
	return l.writePhase(Starting)
}

// serve serves weft-guest in the pod.
func (l *launch) serve(ctx context.Context, key string) (ended <-chan error, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	problem, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		if err := l.Host.Serve(ctx, l.Pod, key); err != nil && ctx.Err() == nil {
			problem <- err
		}
	}()
	return problem, func() { cancel(); <-done }
}

// startVM opens the devices for the hypervisor, and starts it.
func (l *launch) startVM(ctx context.Context) (VM, error) {
	c := l.QEMU
	user := l.Input.VM.Owner
	c.Name, c.Dir, c.User, c.Taps, c.NS = l.Input.VM.Key(), l.Dir, &user, map[string][]*os.File{}, l.Pod.NS
	c.VhostNet = map[string][]*os.File{}
	defer func() {
		for _, all := range []map[string][]*os.File{c.Taps, c.VhostNet} {
			for _, files := range all {
				closeAll(files)
			}
		}
	}()
	start := l.Hypervisor
	for _, n := range l.record.Networks {
		c.Devices = append(c.Devices, n.Device)
		if n.Device.HostPCI != "" || start != nil {
			continue
		}
		taps, err := l.openTaps(n)
		if err != nil {
			return nil, err
		}
		c.Taps[n.Device.Name], c.VhostNet[n.Device.Name] = taps, l.vhost(n.Device)
	}
	if start == nil {
		start = func(ctx context.Context, c qemu.Config) (VM, error) { return qemu.Start(ctx, c) }
	}
	return start(ctx, c)
}

// openTaps opens a guest's tap.
func (l *launch) openTaps(n phase1.Network) ([]*os.File, error) {
	taps, err := qemu.OpenTap(l.Pod.NS, n.Device)
	if err != nil {
		return nil, fmt.Errorf("%s.domain.devices.interfaces[%d]: %w", l.Input.VM.Path, n.Interface.Index, err)
	}
	return taps, nil
}

// podAddrs returns the addresses of the pod's links, before the guest gets them.
func (c Config) podAddrs() (map[string][]netip.Addr, error) {
	out := map[string][]netip.Addr{}
	for _, nic := range c.Input.VM.Interfaces {
		if nic.Absent || nic.Binding == model.VMSRIOV {
			continue
		}
		addrs, err := nicAddrs(c.Pod, c.Input, nic)
		if err != nil {
			return nil, err
		}
		out[nic.Name] = addrs
	}
	return out, nil
}

func nicAddrs(pod host.Pod, in plan.Input, nic model.VMInterface) ([]netip.Addr, error) {
	name := in.PodLink(nic)
	addrs, err := linkAddrs(pod.NS, name)
	if err != nil {
		return nil, model.Errorf(model.CodeInvalidEnv, "the pod must be attached to the network first",
			"%s.domain.devices.interfaces[%d].name: network %q: the pod has no link %s: %w", in.VM.Path, nic.Index,
			nic.Network.Name, name, err)
	}
	return addrs, nil
}
