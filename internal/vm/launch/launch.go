// SPDX-License-Identifier: Apache-2.0

// Package launch runs a virtual machine in a pod that is there, as KubeVirt's launcher and handler do together: the
// pod's network is given to the guest (phase 1), somebody speaks to the guest (weft-guest), a hypervisor runs it; and
// when that ends, however it does, the pod has its network back.
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

// Config is one machine and its pod.
type Config struct {
	// Dir is the machine's: sockets, the console's log, what is said of it. It is made, and must be nobody else's.
	Dir  string
	Pod  host.Pod
	Host host.Host
	// Input is what the plan is made of.
	Input plan.Input
	// Speaker is the program weft-guest.
	Speaker string
	// QEMU says what is booted and with how much; name, directory, devices and user are filled in.
	QEMU qemu.Config
	// Hypervisor starts the machine; nil is QEMU itself.
	Hypervisor func(ctx context.Context, c qemu.Config) (Machine, error)
	// Vhost is opened in the place of vhost-net, without asking whether it can be used; "" is that: for tests.
	Vhost string
	// Grace is how long the guest may take to end after its button was pressed.
	Grace time.Duration
	Log   *slog.Logger
	// Networks, which may be nil, has the pod attached to the networks of a machine, and detached from others, while it
	// runs.
	Networks func(ctx context.Context, vm model.VM) error
	// Up, which may be nil, is called when the machine runs.
	Up func(Status)
	// About is said of the machine beside what is found out here.
	About Status
}

// Machine is a machine that a hypervisor runs.
type Machine interface {
	Done() <-chan struct{}
	Err() error
	// Stop presses the machine's button and ends it at the latest when the context does; Kill does so at once.
	Stop(ctx context.Context)
	Kill()
	// SetLink gives a card its carrier or takes it.
	SetLink(ctx context.Context, d model.VMDevice, up bool) error
	// Plug gives the machine another card; Unplug takes one away, and waits until the guest has let go of it. The files
	// are the caller's to close.
	Plug(ctx context.Context, d model.VMDevice, taps, vhost []*os.File) error
	Unplug(ctx context.Context, d model.VMDevice) error
}

// launch is one under way.
type launch struct {
	Config
	// key is the machine's: Input.VM belongs to who is changing it.
	key     string
	record  phase1.Record
	status  Status
	machine Machine
	// addrs are those of the pod's links, before the guest had them.
	addrs   map[string][]netip.Addr
	speaker speaker

	// changing keeps changes one at a time, and away from the machine's end: after that ended is true.
	changing sync.Mutex
	ended    bool
}

// Run runs the machine until it ends or the context does; then it is asked to end. Nothing of it is left in the pod;
// its directory is the caller's to forget.
func (c Config) Run(ctx context.Context) (err error) {
	l := &launch{Config: c, key: c.Input.VM.Key(), status: c.About}
	if err := l.room(); err != nil {
		return err
	}
	if l.addrs, err = c.addresses(); err != nil {
		return err
	}
	// Whatever was begun is taken back, also where the context has ended meanwhile.
	whatever := context.WithoutCancel(ctx)
	l.record, err = c.Host.Start(ctx, c.Pod, c.Input)
	if err != nil {
		return err
	}
	defer func() {
		limited, cancel := context.WithTimeout(whatever, restoreTime)
		defer cancel()
		err = errors.Join(err, c.Host.Stop(limited, c.Pod, l.key))
	}()
	served, stopServing := l.serve(whatever, l.key)
	defer stopServing()
	defer l.boundLogs(whatever, logPause, mostLog)()
	l.speaker.problem = make(chan error, 1)
	l.speak(whatever)
	defer l.speaker.end()
	if l.machine, err = l.boot(ctx); err != nil {
		return err
	}
	defer l.machine.Kill()
	l.status.Interfaces = interfaces(l.record, l.addrs)
	if err := l.say(Running); err != nil {
		return err
	}
	running := l.status
	stopAnswers, err := l.answer(ctx)
	if err != nil {
		return err
	}
	defer stopAnswers()
	if c.Up != nil {
		c.Up(running)
	}
	if over, err := l.wait(ctx, served); over {
		return err
	}
	stopAnswers()
	if err := l.say(Stopping); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(whatever, c.Grace)
	defer cancel()
	l.machine.Stop(limited)
	return nil
}

// wait waits for the machine's end, which is over then, or the context's.
func (l *launch) wait(ctx context.Context, served <-chan error) (over bool, err error) {
	select {
	case <-l.machine.Done():
		if l.machine.Err() != nil {
			return true, fmt.Errorf("machine %s: the hypervisor ended: %w", l.key, l.machine.Err())
		}
		return true, nil
	case err := <-served:
		return true, fmt.Errorf("machine %s: %w", l.key, err)
	case err := <-l.speaker.problem:
		return true, fmt.Errorf("machine %s: weft-guest: %w", l.key, err)
	case <-ctx.Done():
		return false, nil
	}
}

// restoreTime bounds how long the pod's network may take to be restored.
const restoreTime = 30 * time.Second

// room makes the machine's directory.
func (l *launch) room() error {
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return model.Faultf(model.CodeIO, "run as root, or choose another directory with --dir", "machine %s: %w", l.key, err)
	}
	return l.say(Starting)
}

// serve has the words and sockets for the guest given away.
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

// boot opens what the hypervisor gets, and starts it.
func (l *launch) boot(ctx context.Context) (Machine, error) {
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
		taps, err := l.open(n)
		if err != nil {
			return nil, err
		}
		c.Taps[n.Device.Name], c.VhostNet[n.Device.Name] = taps, l.vhost(n.Device)
	}
	if start == nil {
		start = func(ctx context.Context, c qemu.Config) (Machine, error) { return qemu.Start(ctx, c) }
	}
	return start(ctx, c)
}

// open opens what the hypervisor speaks to a guest through.
func (l *launch) open(n phase1.Network) ([]*os.File, error) {
	taps, err := qemu.Open(l.Pod.NS, n.Device)
	if err != nil {
		return nil, fmt.Errorf("%s.domain.devices.interfaces[%d]: %w", l.Input.VM.Path, n.Interface.Index, err)
	}
	return taps, nil
}

// addresses are those of the pod's links, before the guest has them.
func (c Config) addresses() (map[string][]netip.Addr, error) {
	out := map[string][]netip.Addr{}
	for _, nic := range c.Input.VM.Interfaces {
		if nic.Absent || nic.Binding == model.VMSRIOV {
			continue
		}
		addrs, err := addressesOf(c.Pod, c.Input, nic)
		if err != nil {
			return nil, err
		}
		out[nic.Name] = addrs
	}
	return out, nil
}

func addressesOf(pod host.Pod, in plan.Input, nic model.VMInterface) ([]netip.Addr, error) {
	name := in.PodLink(nic)
	addrs, err := linkAddrs(pod.NS, name)
	if err != nil {
		return nil, model.Faultf(model.CodeInvalidEnv, "the pod must be attached to the network first",
			"%s.domain.devices.interfaces[%d].name: network %q: the pod has no link %s: %w", in.VM.Path, nic.Index,
			nic.Network.Name, name, err)
	}
	return addrs, nil
}
