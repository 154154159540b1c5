// SPDX-License-Identifier: Apache-2.0

// Package host applies VMs' networks to pods and undoes them: by the node's agent over its socket, or in this process
// if there is no agent.
//
//	Start   phase 1: links, addresses, sysctls and rules in the pod
//	Serve   the node's side of phase 2: it passes guest configurations and open sockets to weft-guest, over a socket in
//	        the pod
//	Stop    restores the pod's network
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

// GuestSocket is the socket of weft-guest in a pod. It is an abstract address, so each network namespace has its own.
const GuestSocket = "@weft-guest"

// DefaultDir is the directory of records if there is no agent.
const DefaultDir = "/run/weft/vm"

// Pod is the pod of a VM.
type Pod struct {
	// NS is the pod's namespace; nil for Stop if it is gone.
	NS *netns.NS
	// ID is a unique ID that is never reused; "" is the Identity of the namespace.
	ID string
	// Root is the root directory of the hypervisor's container (/proc/PID/root), or "": in it, the hypervisor's user is
	// granted the devices of the node that it needs.
	Root string
}

// Identity returns a unique ID of the pod, "" if neither ID nor namespace is known.
func (p Pod) Identity() (string, error) {
	if p.ID != "" || p.NS == nil {
		return p.ID, nil
	}
	return phase1.Identity(p.NS)
}

// Host applies VMs' networks to pods.
type Host interface {
	// Start applies the network of the input's VM to its pod. It is idempotent: it adds new networks, removes absent ones
	// and resumes a killed call. A failed call is rolled back.
	Start(ctx context.Context, pod Pod, in plan.Input) (phase1.Record, error)
	// Stop removes a VM from a pod and restores the pod's network. An unknown VM is no error.
	Stop(ctx context.Context, pod Pod, key string) error
	// Find returns the record of a VM; List, of all.
	Find(ctx context.Context, key string) (r phase1.Record, found bool, err error)
	List(ctx context.Context) ([]phase1.Record, error)
	// Serve serves weft-guest in a VM's pod until the context ends.
	Serve(ctx context.Context, pod Pod, key string) error
	Close() error
}

// Config configures a Host.
type Config struct {
	// Socket is the agent's socket; "" is no agent.
	Socket string
	// Dir is the directory of records if there is no agent.
	Dir string
	Log *slog.Logger
	// Step, if set, is phase 1's failpoint hook.
	Step failpoint.Hook
}

const pingTime = wire.PingMillis * time.Millisecond

// Open connects to the agent, or works without one if there is no socket. If the socket exists and no process answers,
// the agent was killed and will return; it would not know of changes by this process, so Open fails.
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
			return nil, model.Errorf(model.CodeTryAgain, "start the agent; without one, set no agent socket",
				"agent at %s: %w", c.Socket, err)
		}
	}
	id, err := boot.ID()
	if err != nil {
		return nil, err
	}
	return NewLocal(phase1.Config{Dir: c.Dir, Boot: id, Log: c.Log, Step: c.Step}), nil
}

// FindInPod returns the record of a VM in a pod.
func FindInPod(ctx context.Context, h Host, pod Pod, key string) (phase1.Record, error) {
	name, err := pod.Identity()
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
		case r.VM == key && r.PodID == name:
			return r, nil
		case r.VM == key:
			other = "; it is in pod " + r.PodID
		}
	}
	return phase1.Record{}, model.Errorf(model.CodeInvalidEnv, "run weft vm phase1",
		"VM %s is not in pod %s%s", key, name, other)
}
