// SPDX-License-Identifier: Apache-2.0

// Package host brings machines' networks into pods and takes them out again, whoever does it: the node's agent, asked
// over its socket, or this process where there is none.
//
//	Start   phase 1: links, addresses, settings and rules in the pod
//	Serve   the node's side of phase 2: words and open sockets for weft-guest, over one socket in the pod
//	Stop    the pod's network is what it was
package host

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"time"

	"github.com/weft-net/weft/internal/boot"
	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// GuestSocket is where weft-guest asks for its wires: an abstract address, which each network namespace has of its own.
const GuestSocket = "@weft-guest"

// DefaultDir is where records are when no agent keeps them.
const DefaultDir = "/run/weft/vm"

// Pod is where a machine is.
type Pod struct {
	// NS is the pod's namespace; nil for Stop when it has gone.
	NS *netns.NS
	// ID is a name that no other pod ever has; without one, the namespace tells.
	ID string
	// Root is the root directory of the hypervisor's container (/proc/PID/root), or "": there the machine's user is given
	// the devices of the node that it needs.
	Root string
}

// Name names the pod among all that there ever are, "" where nothing is known of it.
func (p Pod) Name() (string, error) {
	if p.ID != "" || p.NS == nil {
		return p.ID, nil
	}
	return phase1.Identity(p.NS)
}

// Host is who brings machines' networks into pods.
type Host interface {
	// Start brings what the input's machine needs into its pod. Called again it changes nothing, makes what is new and
	// takes away what is absent by now; it takes up a call that was killed. A call that fails takes back what it began.
	Start(ctx context.Context, pod Pod, in plan.Input) (phase1.Record, error)
	// Stop takes a machine out of a pod, which then has the network that it had. Nothing to take out is no error.
	Stop(ctx context.Context, pod Pod, key string) error
	// Find tells what is known of a machine; List, of all.
	Find(ctx context.Context, key string) (r phase1.Record, found bool, err error)
	List(ctx context.Context) ([]phase1.Record, error)
	// Serve gives the words and sockets for a machine's guests to weft-guest until the context ends.
	Serve(ctx context.Context, pod Pod, key string) error
	Close() error
}

// Config is what a Host is made of.
type Config struct {
	// Socket is the agent's; "" is none: this process does it by itself.
	Socket string
	// Dir is where records are when there is no agent.
	Dir string
	Log *slog.Logger
	// Step, which may be nil, is phase 1's hook for tests.
	Step failpoint.Hook
}

const pingTime = wire.PingMillis * time.Millisecond

// Open finds the agent, or does without one. Where there is a socket of which nobody answers, the agent was killed and
// will be back: whatever were done meanwhile it would not know of.
func Open(ctx context.Context, c Config) (Host, error) {
	if c.Socket != "" {
		ctx, cancel := context.WithTimeout(ctx, pingTime)
		defer cancel()
		conn, err := new(net.Dialer).DialContext(ctx, "unix", wire.PingSocket(c.Socket))
		if err == nil {
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			_, err = conn.Read(make([]byte, wire.AnswerHeader))
			stop()
			_ = conn.Close()
		}
		if err == nil {
			return remote{socket: c.Socket}, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, model.Faultf(model.CodeTryAgain, "start it, or name no socket of an agent where there shall be none",
				"agent at %s: %w", c.Socket, err)
		}
	}
	id, err := boot.ID()
	if err != nil {
		return nil, err
	}
	return NewLocal(phase1.Config{Dir: c.Dir, Boot: id, Log: c.Log, Step: c.Step}), nil
}

// In is what is known of a machine in a pod.
func In(ctx context.Context, h Host, pod Pod, key string) (phase1.Record, error) {
	name, err := pod.Name()
	if err != nil {
		return phase1.Record{}, err
	}
	all, err := h.List(ctx)
	if err != nil {
		return phase1.Record{}, err
	}
	other := ""
	for _, r := range all {
		switch {
		case r.Machine == key && r.In == name:
			return r, nil
		case r.Machine == key:
			other = "; it is in pod " + r.In
		}
	}
	return phase1.Record{}, model.Faultf(model.CodeInvalidEnv, "weft vm phase1 brings it there",
		"nothing is known of machine %s in pod %s%s", key, name, other)
}
