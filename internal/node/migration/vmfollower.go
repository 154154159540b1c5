// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

const (
	// copyPeriod is how often connections are compared, freshPeriod how often unchanged ones are written again: the
	// target tracks them for copyTime.
	copyPeriod, freshPeriod, copyTime = time.Second, 40 * time.Second, 120 * time.Second
	// settleTime is how long the target waits for the last connections after the switch.
	settleTime = 5 * time.Second
	// quietTime is how long packets from a VM that has left are ignored.
	quietTime = time.Second
	// conflictPause is the pause while this node and the cluster disagree about an address's node.
	conflictPause = 50 * time.Millisecond
	// retryFirst and retryMost are the first and the longest pause before a retry.
	retryFirst, retryMost = 50 * time.Millisecond, 2 * time.Second
	// watchAgain is the pause before a failed watch of moves is retried: their CRD may not be installed yet.
	watchAgain = 10 * time.Second
	// remembered is how long the agent remembers that a VM was here.
	remembered = time.Minute
	// lastTime limits the writes after an attachment's end.
	lastTime = 5 * time.Second
)

// vmFollower handles one attachment of a VM.
type vmFollower struct {
	m      *Mover
	key    model.AttachmentKey
	serial int64
	vm     model.VMRef
	// pod is the name of the pod, in the VM's namespace, whose annotation names the VM; empty if the caller of the plugin,
	// which is root on the node, named it by CNI_ARGS.
	pod   string
	link  string // the attachment's host interface
	mac   [6]byte
	addrs []netip.Addr
	move  store.Key // of the move that a standby attachment creates

	wake     notify.Chan   // something may have changed
	reread   notify.Chan   // the VM's instance must be read now
	reported notify.Chan   // an administrator reports that the VM runs here
	gone     chan struct{} // closed when the attachment is deleted

	// left is when the VM left, nil if it has not been here. It has the monotonic clock's reading: the system's clock may
	// be set until the VM returns.
	left   atomic.Pointer[time.Time]
	copied copied
	// relay is the node from which the VM comes, nil if that does not matter.
	relay atomic.Pointer[relayed]
	// known are the tuples of the imported connections.
	known atomic.Pointer[map[tuple]bool]
}

func newVMFollower(m *Mover, rec attach.Record) *vmFollower {
	f := &vmFollower{
		m: m, key: rec.Key(), serial: rec.Serial, vm: *rec.Request.VM(), link: rec.HostLink(), addrs: rec.Addrs(),
		wake: notify.New(), reread: notify.New(), reported: notify.New(), gone: make(chan struct{}),
	}
	for _, l := range rec.Fragment().Pod.Links {
		if l.Peer != nil && l.Peer.Name == f.link {
			f.mac = l.MAC
		}
	}
	if o := rec.Request.Origin; o != nil && o.VM != nil {
		f.pod = o.Pod.Name
	}
	f.move = store.AddressMoves().Key(f.vm.Namespace, moveName(f.vm.Name, rec.Key()))
	return f
}

// moveName begins with a readable part and ends with a unique one.
func moveName(vm string, key model.AttachmentKey) string {
	sum := sha256.Sum256([]byte(key.String()))
	return strings.TrimRight(vm[:min(len(vm), 40)], "-.") + "-" + hex.EncodeToString(sum[:5])
}

func (f *vmFollower) own(a netip.Addr) bool { return slices.Contains(f.addrs, a) }

// run handles the attachment until ctx ends or the attachment is deleted.
func (f *vmFollower) run(ctx context.Context) {
	life, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-f.gone:
			cancel()
		case <-life.Done():
		}
	}()
	stood := false
	for life.Err() == nil {
		rec, found, err := f.m.cfg.Records.Get(f.key)
		if err != nil || !found || rec.Serial != f.serial || rec.Stage != attach.Done {
			f.pause(life, retryMost)
			continue
		}
		switch stood = rec.Standby; {
		case rec.Switching && stood: // the agent was killed during the switch
			f.retry(life, "attachment of a VM that has left could not be retired", f.stepBack)
		case rec.Switching:
			f.retry(life, "addresses of a VM could not be switched", f.activate)
		case stood:
			f.await(life, rec)
		default:
			f.arrived() // the agent may have been killed before
			f.serve(life, rec)
		}
	}
	if ctx.Err() == nil { // otherwise the next agent continues
		f.setRelay(nil)
		f.last(ctx, stood)
	}
}

func (f *vmFollower) activate(ctx context.Context) error {
	return f.m.cfg.Attachments.Activate(ctx, f.key)
}

func (f *vmFollower) stepBack(ctx context.Context) error {
	return f.m.cfg.Attachments.Retire(ctx, f.key)
}

// last writes the end of a deleted attachment: the VM is not awaited any more, or it has left permanently.
func (f *vmFollower) last(ctx context.Context, stood bool) {
	ctx, cancel := context.WithTimeout(ctx, lastTime)
	defer cancel()
	if o, _, is := f.m.of(f.move); is {
		f.m.deleteMove(ctx, o)
	}
	if stood {
		return
	}
	if f.m.rememberDeparted(f); f.m.isRequested(f) {
		f.updateMove(ctx, nil, true)
	}
}

// pause waits, for a shorter time if something changes.
func (f *vmFollower) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-f.wake:
	case <-f.m.cfg.After(d):
	}
}

// retry calls a function until it succeeds or ctx ends; what is the log message of a failure.
func (f *vmFollower) retry(ctx context.Context, what string, do func(context.Context) error) bool {
	wait := retryFirst
	for {
		err := do(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		f.m.cfg.Log.Warn(what, "vm", f.vm.String(), "attachment", f.key.String(), "err", err)
		select {
		case <-ctx.Done():
			return false
		case <-f.m.cfg.After(wait):
		}
		wait = min(2*wait, retryMost)
	}
}

// otherNode returns the other node that has one of the addresses according to the cluster's blocks, empty if it is this
// one. The result sure reports that this node's own data agrees.
func (f *vmFollower) otherNode() (node string, sure bool) {
	c := f.m.cfg.Cluster()
	if c == nil {
		return "", false
	}
	for _, a := range f.addrs {
		for _, b := range c.Blocks {
			if !b.CIDR.Contains(a) {
				continue
			}
			holder := b.Node
			if with, claim, _ := strings.Cut(b.Lent[a], "/"); with != "" && claim != "" {
				holder = with
			}
			if holder != f.m.cfg.Node {
				return holder, !f.m.cfg.Holds(a)
			}
		}
	}
	return "", false
}

func (f *vmFollower) logf(format string, args ...any) {
	f.m.cfg.Log.Info(fmt.Sprintf(format, args...), "vm", f.vm.String(), "attachment", f.key.String())
}
