// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/guest/fdserver"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// Local is a Host that works in this process.
type Local struct {
	phase1 phase1.Config

	mu      sync.Mutex
	servers map[podVM]*server
}

// podVM identifies a VM in a pod.
type podVM struct{ vm, pod string }

// server is a running fdserver.
type server struct {
	fds  *fdserver.Server
	ns   *netns.NS
	stop func()
}

// NewLocal returns a Local.
func NewLocal(c phase1.Config) *Local { return &Local{phase1: c, servers: map[podVM]*server{}} }

// Start applies a VM's network to its pod.
func (l *Local) Start(ctx context.Context, pod Pod, in plan.Input) (phase1.Record, error) {
	return l.StartIn(ctx, pod, in, "")
}

// StartIn is Start for a pod with a known sandbox ID.
func (l *Local) StartIn(ctx context.Context, pod Pod, in plan.Input, container string) (phase1.Record, error) {
	name, err := pod.Identity()
	if err != nil {
		return phase1.Record{}, err
	}
	c := l.phase1
	c.Container, c.Root = container, pod.Root
	record, err := c.Start(ctx, pod.NS, name, in)
	if err != nil {
		return phase1.Record{}, err
	}
	l.update(record)
	return record, nil
}

// Stop removes a VM from its pod.
func (l *Local) Stop(ctx context.Context, pod Pod, key string) error {
	name, err := pod.Identity()
	if err != nil {
		return err
	}
	r, found, err := l.phase1.Read(key, name)
	if err != nil || !found {
		return err
	}
	if pod.NS == nil { // the record may have a path that exists
		if ns, err := OpenPod(r); err == nil {
			defer func() { _ = ns.Close() }()
			pod.NS = ns
		}
	}
	if err := l.phase1.Undo(ctx, pod.NS, r.PodID, key); err != nil {
		return err
	}
	l.StopServing(key, r.PodID)
	return nil
}

// errGone is PodOf's error for a pod that is gone.
var errGone = errors.New("the pod's namespace is gone")

// OpenPod opens the namespace of a VM's pod, by the path of the VM's call or by others.
func OpenPod(r phase1.Record, others ...string) (*netns.NS, error) {
	for _, path := range append([]string{r.Netns}, others...) {
		ns, err := netns.Open(path)
		if err != nil {
			continue
		}
		if name, err := phase1.Identity(ns); err == nil && name == r.Namespace {
			return ns, nil
		}
		_ = ns.Close()
	}
	return nil, errGone
}

// UndoSome undoes the chosen networks of a VM, and returns the remaining record.
func (l *Local) UndoSome(
	ctx context.Context, ns *netns.NS, r phase1.Record, chosen func(attach.Act) bool,
) (phase1.Record, error) {
	left, err := l.phase1.UndoSome(ctx, ns, r.PodID, r.VM, chosen)
	switch {
	case err != nil:
	case len(left.Networks) == 0:
		l.StopServing(r.VM, r.PodID)
	default:
		l.update(left)
	}
	return left, err
}

// Find returns the record of a VM.
func (l *Local) Find(_ context.Context, key string) (phase1.Record, bool, error) {
	return l.phase1.Read(key, "")
}

// List returns the records of all VMs.
func (l *Local) List(context.Context) ([]phase1.Record, error) { return l.phase1.List() }

// Serve serves weft-guest until the context ends.
func (l *Local) Serve(ctx context.Context, pod Pod, key string) error {
	name, err := pod.Identity()
	if err != nil {
		return err
	}
	record, found, err := l.phase1.Read(key, name)
	if err != nil {
		return err
	}
	if !found {
		return model.Errorf(model.CodeInvalidEnv, "run phase 1 first",
			"VM %s is not in pod %s", key, name)
	}
	ended, err := l.StartServing(record, pod.NS, GuestSocket)
	if err != nil {
		return err
	}
	select {
	case err = <-ended:
		return err
	case <-ctx.Done():
		l.StopServing(key, name)
		return <-ended
	}
}

// StartServing serves weft-guest for a VM, at an abstract address in the pod or a path of this process, until
// StopServing. The channel receives the error when serving ends. The namespace is duplicated.
func (l *Local) StartServing(record phase1.Record, ns *netns.NS, address string) (<-chan error, error) {
	at := podVM{record.VM, record.PodID}
	own, err := ns.Duplicate()
	if err != nil {
		return nil, err
	}
	g, err := fdserver.Listen(own, address, record.Owner, l.phase1.Log.With("vm", record.VM))
	if err != nil {
		return nil, errors.Join(err, own.Close())
	}
	g.Failpoint = l.phase1.Step
	ctx, cancel := context.WithCancel(context.Background())
	ended, done := make(chan error, 1), make(chan struct{})
	s := &server{fds: g, ns: own, stop: func() { cancel(); <-done }}
	l.mu.Lock()
	if l.servers[at] != nil {
		l.mu.Unlock()
		cancel()
		return nil, errors.Join(fmt.Errorf("VM %s in pod %s is already served", at.vm, at.pod),
			g.Close(), own.Close())
	}
	l.servers[at] = s
	l.mu.Unlock()
	g.Set(guestConfigs(record))
	go func() {
		defer close(done)
		defer cancel()
		err := g.Run(ctx)
		ended <- errors.Join(err, own.Close())
	}()
	return ended, nil
}

// StopServing ends StartServing.
func (l *Local) StopServing(key, pod string) {
	l.mu.Lock()
	s := l.servers[podVM{key, pod}]
	delete(l.servers, podVM{key, pod})
	l.mu.Unlock()
	if s != nil {
		s.stop()
	}
}

// Serving reports whether weft-guest is served for a VM.
func (l *Local) Serving(key, pod string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.servers[podVM{key, pod}] != nil
}

// update passes the current guest configurations to weft-guest.
func (l *Local) update(record phase1.Record) {
	l.mu.Lock()
	s := l.servers[podVM{record.VM, record.PodID}]
	l.mu.Unlock()
	if s != nil {
		s.fds.Set(guestConfigs(record))
	}
}

// guestConfigs returns those of the finished networks.
func guestConfigs(record phase1.Record) []model.GuestConfig {
	var out []model.GuestConfig
	for _, n := range record.Networks {
		if n.Guest != nil && n.State == phase1.Finished {
			out = append(out, *n.Guest)
		}
	}
	return out
}

// Close ends all serving.
func (l *Local) Close() error {
	l.mu.Lock()
	var all []podVM
	for at := range l.servers {
		all = append(all, at)
	}
	l.mu.Unlock()
	for _, at := range all {
		l.StopServing(at.vm, at.pod)
	}
	return nil
}
