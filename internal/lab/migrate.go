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
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/vm/gap"
	"github.com/weft-net/weft/internal/vm/launch"
	"github.com/weft-net/weft/internal/vm/manifest"
	"github.com/weft-net/weft/internal/vm/qemu"
)

// Migrate has a machine of a lab go on on another node, as KubeVirt's controllers would, while somebody holds a
// connection to it.
type Migrate struct {
	Dir Dir
	// Machine is its name, or NAMESPACE/NAME, Node where it goes to.
	Machine, Node string
	// Peer is the node or pod that holds a connection to it; "" is a pod or node that the machine neither leaves nor goes
	// to, if there is one.
	Peer string
	// Self is this program, and Env the environment that the machine's process gets.
	Self string
	Env  []string
	Say  Progress
}

// Migration is what the machine's going to another node cost. The keys of its JSON form are stable.
type Migration struct {
	Machine string `json:"machine"`
	From    string `json:"from"`
	To      string `json:"to"`
	// Pod is the machine's pod by now, Address where the peer has called the machine.
	Pod     string     `json:"pod"`
	Address netip.Addr `json:"address"`
	Peer    string     `json:"peer"`
	// Took is how long it took to have it go on there, of which most is the pod and the hypervisor, and Pause the longest
	// time between two lines of the machine on the connection, of one each 10 ms; both in milliseconds.
	Took  float64 `json:"tookMs"`
	Pause float64 `json:"pauseMs"`
	// Resets are connections that ended, and lines that did not come: there is an error with the first.
	Resets int `json:"resets"`
}

// journey is a migration under way.
type journey struct {
	Migrate
	up    Up
	store *dir.Store
	// here is the machine where it runs; peer who holds a connection.
	here launch.Status
	peer Place
	raw  []byte
	conf manifest.Launch
	// target is the name of the pod that the machine goes to.
	target string
}

// Run does it. After an error the machine runs where it was, unless it had begun to run there.
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
	j := &journey{Migrate: m, up: Up{Dir: m.Dir, Spec: marker.Layout.Spec, Self: m.Self, Env: m.Env, Say: m.Say}}
	if err := j.prepare(ctx, marker); err != nil {
		return Migration{}, err
	}
	return j.run(ctx, marker.Layout)
}

// prepare finds out who goes where, before anything is made.
func (j *journey) prepare(ctx context.Context, marker Marker) error {
	st, err := j.Dir.Status(ctx)
	if err != nil {
		return err
	}
	if j.here, err = j.find(ctx, st); err != nil {
		return err
	}
	if err := j.may(marker.Layout); err != nil {
		return err
	}
	if len(guestAddrs(j.here)) == 0 {
		return model.Faultf(model.CodeInvalidConf, "", "machine %s has no address by which it could be called", j.here.Key())
	}
	if j.peer, err = st.witness(j.Peer, j.here, j.Node); err != nil {
		return err
	}
	if j.raw, err = os.ReadFile(j.here.Dir + ".yaml"); err != nil {
		return err
	}
	if j.conf, err = manifest.ReadLaunch(j.raw, manifest.Options{}); err != nil {
		return err
	}
	if j.store, err = dir.Open(j.Dir.Store()); err != nil {
		return err
	}
	return j.tidy(ctx, st)
}

// may tells what keeps the machine from going.
func (j *journey) may(l Layout) error {
	var names []string
	for _, n := range l.Nodes {
		names = append(names, n.Name)
	}
	switch {
	case !l.Spec.pools():
		return model.Faultf(model.CodeInvalidConf, "bring the lab up with --addresses pools",
			"machine %s cannot migrate with its addresses: the pods of each node are of one prefix", j.here.Key())
	case l.find(j.Node).Addrs[0] == nil:
		return model.Faultf(model.CodeInvalidConf, fmt.Sprintf("the lab's nodes are %v", names),
			"no node is called %q", j.Node)
	case j.here.Node == j.Node:
		return model.Faultf(model.CodeInvalidConf, "name another node", "machine %s is on %s already", j.here.Key(), j.Node)
	}
	return nil
}

// run makes the pod that awaits the machine, has the machine go there, and takes away what it has left.
func (j *journey) run(ctx context.Context, l Layout) (out Migration, err error) {
	begun := time.Now()
	whatever := context.WithoutCancel(ctx)
	out = Migration{
		Machine: j.here.Key(), From: j.here.Node, To: j.Node, Peer: j.peer.Name, Address: guestAddrs(j.here)[0],
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ears, err := j.listen(ctx, out.Address)
	if err != nil {
		return out, err
	}
	there, pod, err := j.await(ctx, l)
	out.Pod = pod
	if err == nil {
		j.Say("machine %s goes from %s to %s, with a connection that %s holds to %s", out.Machine, out.From, out.To,
			out.Peer, out.Address)
		limited, stop := context.WithTimeout(ctx, bootLimit)
		resumed, failed := qemu.Migrate(limited, j.here.Dir, there.Dir)
		stop()
		if err = failed; err == nil {
			return out, j.arrived(whatever, ears, &out, begun, resumed)
		}
	}
	if state, e := stateOf(whatever, j.here); e == nil && state != "running" {
		return out, fmt.Errorf("machine %s is %s on %s, and perhaps runs on %s: %w", out.Machine, state,
			out.From, out.To, err)
	}
	return out, errors.Join(fmt.Errorf("machine %s stays on %s: %w", out.Machine, out.From, err), j.fail(whatever),
		j.end(whatever, there, j.Node, pod))
}

// arrived waits until the machine is heard from its new node, and ends what is left of it on the one before.
func (j *journey) arrived(ctx context.Context, ears *gap.Peer, out *Migration, begun, resumed time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	out.Took = milliseconds(resumed.Sub(begun))
	err := j.tell(ctx)
	if err == nil {
		err = ears.Await(ctx, resumed)
	}
	if err == nil {
		time.Sleep(gap.Around) // until lines come in time again
		out.Pause = milliseconds(ears.Around(resumed).Stream)
	} else {
		out.Resets++
		err = model.Faultf(model.CodeInternal, "look at the agents' logs below nodes/",
			"machine %s runs on %s; its connection with %s: %w", out.Machine, out.To, out.Peer, err)
	}
	return errors.Join(err, j.forbid(ctx), j.end(ctx, j.here, out.From, j.here.Pod))
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}

// listen has the peer call the machine, which says a line each 10 ms on that connection.
func (j *journey) listen(ctx context.Context, addr netip.Addr) (*gap.Peer, error) {
	g, err := openGuest(ctx, j.here, guestName(j.here))
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", j.here.Key(), err)
	}
	g.console.Close()
	if g.ports["tcp"] == 0 {
		return nil, model.Faultf(model.CodeInvalidConf, "list one among the interface's ports",
			"machine %s has no port for TCP", j.here.Key())
	}
	ns, err := netns.Open(j.peer.Netns)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	ears := &gap.Peer{Now: time.Now}
	since := time.Now()
	err = ears.Hear(ctx, ns, netip.AddrPortFrom(addr, g.ports["tcp"]), "weft talk 10ms")
	if err == nil {
		err = ears.Await(ctx, since)
	}
	if err != nil {
		return nil, model.Faultf(model.CodeInvalidEnv, "see `weft lab reach`; who calls it is chosen with --from",
			"%s does not reach machine %s at %s: %w", j.peer.Name, j.here.Key(), addr, err)
	}
	return ears, nil
}
