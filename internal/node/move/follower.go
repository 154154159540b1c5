// SPDX-License-Identifier: Apache-2.0

package move

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
	// copyPeriod is how often connections are looked at, freshPeriod how often they are handed over though none is new:
	// what is tracked elsewhere lasts copyTime without word.
	copyPeriod, freshPeriod, copyTime = time.Second, 40 * time.Second, 120 * time.Second
	// settleTime is how long the last connections are waited for after the switch.
	settleTime = 5 * time.Second
	// calm is how long after a machine has left nothing that comes from there counts.
	calm = time.Second
	// disagree is when to look again while this node and the cluster say different things of an address.
	disagree = 50 * time.Millisecond
	// retryFirst and retryMost are the pauses before something is tried again.
	retryFirst, retryMost = 50 * time.Millisecond, 2 * time.Second
	// watchAgain is when moves are watched again that could not be: their kind is perhaps not defined yet.
	watchAgain = 10 * time.Second
	// remembered is how long it is known that a machine was here.
	remembered = time.Minute
	// lastTime is how long the words behind an attachment's end may take.
	lastTime = 5 * time.Second
)

// follower follows one attachment of a machine.
type follower struct {
	m      *Mover
	key    model.AttachmentKey
	serial int64
	vm     model.VMRef
	// pod is the name of the pod, in the machine's namespace, that says that it is the machine's; empty where the caller
	// of the plugin, which is root on the node, says so by CNI_ARGS.
	pod   string
	link  string // the node's end
	mac   [6]byte
	addrs []netip.Addr
	move  store.Key // of the move that is made while the machine is awaited

	wake   notify.Chan   // something may have changed
	reread notify.Chan   // the machine's instance is to be read at once
	told   notify.Chan   // somebody says that the machine runs here
	gone   chan struct{} // closed when the attachment is no more

	// left is when the machine has left, in nanoseconds; 0 for one that has not been here.
	left   atomic.Int64
	copied copied
	// relay is where the machine comes from, nil where that does not matter.
	relay atomic.Pointer[relayed]
	// known are the packets that the machine's connections have, of those that were brought along.
	known atomic.Pointer[map[tuple]bool]
}

func newFollower(m *Mover, rec attach.Record) *follower {
	f := &follower{
		m: m, key: rec.Key(), serial: rec.Serial, vm: *rec.Request.VM(), link: rec.HostLink(), addrs: rec.Addrs(),
		wake: notify.New(), reread: notify.New(), told: notify.New(), gone: make(chan struct{}),
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

// moveName is for people first, then beyond doubt.
func moveName(machine string, key model.AttachmentKey) string {
	sum := sha256.Sum256([]byte(key.String()))
	return strings.TrimRight(machine[:min(len(machine), 40)], "-.") + "-" + hex.EncodeToString(sum[:5])
}

func (f *follower) own(a netip.Addr) bool { return slices.Contains(f.addrs, a) }

// run follows until ctx ends or the attachment is no more.
func (f *follower) run(ctx context.Context) {
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
		case rec.Turning && stood: // an agent before was killed meanwhile
			f.insist(life, "machine has left, and its addresses still lead here", f.stepBack)
		case rec.Turning:
			f.insist(life, "machine's addresses are not switched yet", f.activate)
		case stood:
			f.await(life, rec)
		default:
			f.arrived() // an agent before may not have lived to say so
			f.serve(life, rec)
		}
	}
	if ctx.Err() == nil { // else the agent after this one goes on
		f.setRelay(nil)
		f.last(ctx, stood)
	}
}

func (f *follower) activate(ctx context.Context) error {
	return f.m.cfg.Attachments.Activate(ctx, f.key)
}

func (f *follower) stepBack(ctx context.Context) error {
	return f.m.cfg.Attachments.Retire(ctx, f.key)
}

// last says what is to be said when the attachment is no more: that nobody is awaited, or that the machine has left for
// good.
func (f *follower) last(ctx context.Context, stood bool) {
	ctx, cancel := context.WithTimeout(ctx, lastTime)
	defer cancel()
	if o, _, is := f.m.of(f.move); is {
		f.m.forget(ctx, o)
	}
	if stood {
		return
	}
	if f.m.departs(f); f.m.isWanted(f) {
		f.say(ctx, nil, true)
	}
}

// pause waits a while, less when something changes.
func (f *follower) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-f.wake:
	case <-f.m.cfg.After(d):
	}
}

// insist does something until it succeeds or ctx ends; what says what, for people.
func (f *follower) insist(ctx context.Context, what string, do func(context.Context) error) bool {
	wait := retryFirst
	for {
		err := do(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		f.m.cfg.Log.Warn(what, "machine", f.vm.String(), "attachment", f.key.String(), "err", err)
		select {
		case <-ctx.Done():
			return false
		case <-f.m.cfg.After(wait):
		}
		wait = min(2*wait, retryMost)
	}
}

// elsewhere is the node that the cluster says has one of the addresses, empty when it is this one. sure: this node
// knows it, too.
func (f *follower) elsewhere() (node string, sure bool) {
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
			if with, claim, _ := strings.Cut(b.Ceded[a], "/"); with != "" && claim != "" {
				holder = with
			}
			if holder != f.m.cfg.Node {
				return holder, !f.m.cfg.Holds(a)
			}
		}
	}
	return "", false
}

func (f *follower) says(format string, args ...any) {
	f.m.cfg.Log.Info(fmt.Sprintf(format, args...), "machine", f.vm.String(), "attachment", f.key.String())
}
