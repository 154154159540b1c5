// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/vm/downtime"
	"github.com/weft-net/weft/internal/vm/launch"
	"github.com/weft-net/weft/internal/vm/manifest"
	"github.com/weft-net/weft/internal/vm/qemu"
)

// Migrate live-migrates a VM of a lab to another node, as KubeVirt's controllers do, during a connection to it.
type Migrate struct {
	Dir Dir
	// VM is NAME or NAMESPACE/NAME of the VM, Node the target node.
	VM, Node string
	// Peer is the node or pod that is connected to the VM. If it is empty, a pod or node is chosen, if possible on a node
	// that is neither the source nor the target.
	Peer string
	// Self is this program, and Env the environment of the VM's process.
	Self string
	Env  []string
	Logf Progress
}

// Migration is the result of a migration. The keys of its JSON form are stable.
type Migration struct {
	VM   string `json:"machine"` // glossary: a stable key
	From string `json:"from"`
	To   string `json:"to"`
	// Pod is the VM's new pod, Address the address to which the peer is connected.
	Pod     string     `json:"pod"`
	Address netip.Addr `json:"address"`
	Peer    string     `json:"peer"`
	// Took is the duration of the migration, most of which is the start of the pod and the hypervisor. Pause is the longest
	// time between two lines of the VM on the connection; it sends one each 10 ms. Both are in milliseconds.
	Took  float64 `json:"tookMs"`
	Pause float64 `json:"pauseMs"`
	// Resets counts failures of the connection and missing lines; the first is also an error.
	Resets int `json:"resets"`
}

// migrator is a migration in progress.
type migrator struct {
	Migrate
	up    Up
	store *dir.Store
	// source is the VM on the source node; peer is connected to it.
	source launch.Status
	peer   Location
	raw    []byte
	conf   manifest.Launch
	// targetPod is the name of the target's pod.
	targetPod string
}

// Run migrates the VM. After an error the VM continues on the source node, unless it was resumed on the target already.
func (m Migrate) Run(ctx context.Context) (Migration, error) {
	marker, err := m.Dir.Open()
	if err != nil {
		return Migration{}, err
	}
	unlock, err := m.Dir.lock(ctx)
	if err != nil {
		return Migration{}, err
	}
	defer unlock()
	j := &migrator{Migrate: m, up: Up{Dir: m.Dir, Spec: marker.Layout.Spec, Self: m.Self, Env: m.Env, Logf: m.Logf}}
	if err := j.prepare(ctx, marker); err != nil {
		return Migration{}, err
	}
	return j.run(ctx, marker.Layout)
}

// prepare finds and checks everything that the migration needs, before it creates anything.
func (j *migrator) prepare(ctx context.Context, marker Marker) error {
	st, err := j.Dir.Status(ctx)
	if err != nil {
		return err
	}
	if j.source, err = j.findVM(ctx, st); err != nil {
		return err
	}
	if err := j.check(marker.Layout); err != nil {
		return err
	}
	if len(vmAddrs(j.source)) == 0 {
		return model.Errorf(model.CodeInvalidConf, "", "VM %s has no address to connect to", j.source.Key())
	}
	if j.peer, err = st.choosePeer(j.Peer, j.source, j.Node); err != nil {
		return err
	}
	if j.raw, err = os.ReadFile(j.source.Dir + ".yaml"); err != nil {
		return err
	}
	if j.conf, err = manifest.ReadLaunch(j.raw, manifest.Options{}); err != nil {
		return err
	}
	if j.store, err = dir.Open(j.Dir.Store()); err != nil {
		return err
	}
	return j.cleanUp(ctx, st)
}

// check returns an error if the VM cannot migrate.
func (j *migrator) check(l layout.Layout) error {
	var names []string
	for _, n := range l.Nodes {
		names = append(names, n.Name)
	}
	switch {
	case !l.Spec.UsesPools():
		return model.Errorf(model.CodeInvalidConf, "bring the lab up with --addresses pools",
			"VM %s cannot keep its addresses on another node, because each node has a pod CIDR of its own", j.source.Key())
	case l.Find(j.Node).Addrs[0] == nil:
		return model.Errorf(model.CodeInvalidConf, fmt.Sprintf("the lab's nodes are %v", names), "node %q not found", j.Node)
	case j.source.Node == j.Node:
		return model.Errorf(model.CodeInvalidConf, "choose another node", "VM %s is on %s already", j.source.Key(), j.Node)
	}
	return nil
}

// run starts the target, migrates the VM and removes the source.
func (j *migrator) run(ctx context.Context, l layout.Layout) (out Migration, err error) {
	started := time.Now()
	uncanceled := context.WithoutCancel(ctx)
	out = Migration{
		VM: j.source.Key(), From: j.source.Node, To: j.Node, Peer: j.peer.Name, Address: vmAddrs(j.source)[0],
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := j.connect(ctx, out.Address)
	if err != nil {
		return out, err
	}
	target, pod, err := j.startTarget(ctx, l)
	out.Pod = pod
	if err == nil {
		j.Logf("migrating VM %s from %s to %s, with a connection from %s to %s", out.VM, out.From, out.To, out.Peer,
			out.Address)
		limited, stop := context.WithTimeout(ctx, bootTimeout)
		resumed, failed := qemu.Migrate(limited, j.source.Dir, target.Dir)
		stop()
		if err = failed; err == nil {
			return out, j.complete(uncanceled, conn, &out, started, resumed)
		}
	}
	if state, e := hypervisorState(uncanceled, j.source); e == nil && state != "running" {
		return out, fmt.Errorf("VM %s is %s on %s, and may be running on %s: %w", out.VM, state, out.From, out.To, err)
	}
	return out, errors.Join(fmt.Errorf("VM %s stays on %s: %w", out.VM, out.From, err), j.setFailed(uncanceled),
		j.stopVM(uncanceled, target, j.Node, pod))
}

// complete waits until the VM sends from the target node, and removes it from the source node.
func (j *migrator) complete(
	ctx context.Context,
	conn *downtime.Peer,
	out *Migration,
	started, resumed time.Time,
) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	out.Took = milliseconds(resumed.Sub(started))
	err := j.setCompleted(ctx)
	if err == nil {
		err = conn.Await(ctx, resumed)
	}
	if err == nil {
		time.Sleep(downtime.Margin) // until lines arrive in time again
		out.Pause = milliseconds(conn.Measure(resumed).Stream)
	} else {
		out.Resets++
		err = model.Errorf(model.CodeInternal, "see the agents' logs in nodes/",
			"VM %s is running on %s; its connection with %s: %w", out.VM, out.To, out.Peer, err)
	}
	return errors.Join(err, j.deleteMove(ctx), j.stopVM(ctx, j.source, out.From, j.source.Pod))
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}

// connect opens a connection from the peer to the VM, on which the VM sends a line each 10 ms.
func (j *migrator) connect(ctx context.Context, addr netip.Addr) (*downtime.Peer, error) {
	g, err := openGuest(ctx, j.source, endpointName(j.source))
	if err != nil {
		return nil, fmt.Errorf("VM %s: %w", j.source.Key(), err)
	}
	g.console.Close()
	if g.ports["tcp"] == 0 {
		return nil, model.Errorf(model.CodeInvalidConf, "add a TCP port to the interface's ports",
			"VM %s has no TCP port", j.source.Key())
	}
	ns, err := netns.Open(j.peer.Netns)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	conn := &downtime.Peer{Now: time.Now}
	since := time.Now()
	err = conn.ReadStream(ctx, ns, netip.AddrPortFrom(addr, g.ports["tcp"]), "weft talk 10ms")
	if err == nil {
		err = conn.Await(ctx, since)
	}
	if err != nil {
		return nil, model.Errorf(model.CodeInvalidEnv, "see `weft lab reach`; choose another peer with --from",
			"VM %s at %s is not reachable from %s: %w", j.source.Key(), addr, j.peer.Name, err)
	}
	return conn, nil
}
