// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/guest/giver"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// Local does everything in this process.
type Local struct {
	phase1 phase1.Config

	mu     sync.Mutex
	givers map[place]*serving
}

// place is a machine in a pod.
type place struct{ machine, pod string }

// serving is a Giver that runs.
type serving struct {
	giver *giver.Giver
	ns    *netns.NS
	stop  func()
}

// NewLocal makes a Local.
func NewLocal(c phase1.Config) *Local { return &Local{phase1: c, givers: map[place]*serving{}} }

// Start brings a machine's network into its pod.
func (l *Local) Start(ctx context.Context, pod Pod, in plan.Input) (phase1.Record, error) {
	return l.StartIn(ctx, pod, in, "")
}

// StartIn is Start for a pod whose sandbox is known.
func (l *Local) StartIn(ctx context.Context, pod Pod, in plan.Input, container string) (phase1.Record, error) {
	name, err := pod.Name()
	if err != nil {
		return phase1.Record{}, err
	}
	c := l.phase1
	c.Container, c.Root = container, pod.Root
	record, err := c.Start(ctx, pod.NS, name, in)
	if err != nil {
		return phase1.Record{}, err
	}
	l.tell(record)
	return record, nil
}

// Stop takes a machine out of its pod.
func (l *Local) Stop(ctx context.Context, pod Pod, key string) error {
	name, err := pod.Name()
	if err != nil {
		return err
	}
	r, found, err := l.phase1.Read(key, name)
	if err != nil || !found {
		return err
	}
	if pod.NS == nil { // it may live at another path than the caller has
		if ns, err := PodOf(r); err == nil {
			defer func() { _ = ns.Close() }()
			pod.NS = ns
		}
	}
	if err := l.phase1.Undo(ctx, pod.NS, r.In, key); err != nil {
		return err
	}
	l.Silence(key, r.In)
	return nil
}

// errGone is what PodOf says of a pod that is gone.
var errGone = errors.New("the pod's namespace has gone")

// PodOf opens the namespace of a machine's pod at the path that the machine's call had, or at others.
func PodOf(r phase1.Record, others ...string) (*netns.NS, error) {
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

// UndoSome takes the chosen networks of a machine out of its pod, and tells what is left.
func (l *Local) UndoSome(
	ctx context.Context, ns *netns.NS, r phase1.Record, chosen func(attach.Act) bool,
) (phase1.Record, error) {
	left, err := l.phase1.UndoSome(ctx, ns, r.In, r.Machine, chosen)
	switch {
	case err != nil:
	case len(left.Networks) == 0:
		l.Silence(r.Machine, r.In)
	default:
		l.tell(left)
	}
	return left, err
}

// Find tells what is known of a machine.
func (l *Local) Find(_ context.Context, key string) (phase1.Record, bool, error) {
	return l.phase1.Read(key, "")
}

// List tells what is known of all machines.
func (l *Local) List(context.Context) ([]phase1.Record, error) { return l.phase1.List() }

// Serve gives wires to weft-guest until the context ends.
func (l *Local) Serve(ctx context.Context, pod Pod, key string) error {
	name, err := pod.Name()
	if err != nil {
		return err
	}
	record, found, err := l.phase1.Read(key, name)
	if err != nil {
		return err
	}
	if !found {
		return model.Faultf(model.CodeInvalidEnv, "phase 1 comes first",
			"nothing is known of machine %s in pod %s", key, name)
	}
	ended, err := l.Attend(record, pod.NS, GuestSocket)
	if err != nil {
		return err
	}
	select {
	case err = <-ended:
		return err
	case <-ctx.Done():
		l.Silence(key, name)
		return <-ended
	}
}

// Attend begins to give the wires of a machine to weft-guest, at an address in the pod or a path of this process's, and
// goes on until Silence. The channel tells how that ended. The namespace is opened anew.
func (l *Local) Attend(record phase1.Record, ns *netns.NS, address string) (<-chan error, error) {
	at := place{record.Machine, record.In}
	own, err := ns.Again()
	if err != nil {
		return nil, err
	}
	g, err := giver.Listen(own, address, record.Owner, l.phase1.Log.With("machine", record.Machine))
	if err != nil {
		return nil, errors.Join(err, own.Close())
	}
	g.Step = l.phase1.Step
	ctx, cancel := context.WithCancel(context.Background())
	ended, done := make(chan error, 1), make(chan struct{})
	s := &serving{giver: g, ns: own, stop: func() { cancel(); <-done }}
	l.mu.Lock()
	if l.givers[at] != nil {
		l.mu.Unlock()
		cancel()
		return nil, errors.Join(fmt.Errorf("machine %s in pod %s is served already", at.machine, at.pod),
			g.Close(), own.Close())
	}
	l.givers[at] = s
	l.mu.Unlock()
	g.Set(guests(record))
	go func() {
		defer close(done)
		defer cancel()
		err := g.Run(ctx)
		ended <- errors.Join(err, own.Close())
	}()
	return ended, nil
}

// Silence ends what Attend began.
func (l *Local) Silence(key, pod string) {
	l.mu.Lock()
	s := l.givers[place{key, pod}]
	delete(l.givers, place{key, pod})
	l.mu.Unlock()
	if s != nil {
		s.stop()
	}
}

// Attended tells whether a machine's wires are given.
func (l *Local) Attended(key, pod string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.givers[place{key, pod}] != nil
}

// tell gives weft-guest the wires that there are by now.
func (l *Local) tell(record phase1.Record) {
	l.mu.Lock()
	s := l.givers[place{record.Machine, record.In}]
	l.mu.Unlock()
	if s != nil {
		s.giver.Set(guests(record))
	}
}

// guests are the words of a machine's wires.
func guests(record phase1.Record) []model.Guest {
	var out []model.Guest
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
	var all []place
	for at := range l.givers {
		all = append(all, at)
	}
	l.mu.Unlock()
	for _, at := range all {
		l.Silence(at.machine, at.pod)
	}
	return nil
}
