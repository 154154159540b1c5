// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/weft-net/weft/internal/notify"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// extension runs the configured commands for the peers, one after the other and outside of the passes: a command may
// take long.
type extension struct {
	r    *Runner
	end  context.CancelFunc
	over chan struct{}
	wake notify.Chan

	mu   sync.Mutex
	want mesh.Tunnel
	err  error

	begun bool
	done  map[string]lease // by node; used by the worker only
}

// lease has the parameters of the commands for a node.
type lease struct {
	subnet, subnetV6, public, publicV6, data string
}

func (r *Runner) startExtension(w mesh.Tunnel) tunnel {
	e := &extension{r: r, want: w, over: make(chan struct{}), wake: notify.New(), done: map[string]lease{}}
	ctx, end := context.WithCancel(r.ctx)
	e.end = end
	r.parts.Go(func() {
		defer close(e.over)
		e.work(ctx)
	})
	return e
}

// set passes the wanted tunnel to the worker, and returns the last error. After an error each pass retries.
func (e *extension) set(_ context.Context, w mesh.Tunnel, changed bool) error {
	e.mu.Lock()
	e.want = w
	err := e.err
	e.mu.Unlock()
	if changed || err != nil {
		e.wake.Notify()
	}
	return err
}

func (e *extension) close() {
	e.end()
	<-e.over
}

func (e *extension) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.wake:
		}
		e.mu.Lock()
		want, failed := e.want, e.err != nil
		e.mu.Unlock()
		err := e.bring(ctx, want)
		e.mu.Lock()
		e.err = err
		e.mu.Unlock()
		if ctx.Err() == nil && (err != nil) != failed { // the next pass reports the error, or its end
			e.r.changed.Notify()
		}
	}
}

// bring runs the commands that are due.
func (e *extension) bring(ctx context.Context, want mesh.Tunnel) error {
	o := want.Options
	if command := o[mesh.OptionPostStartup]; !e.begun && command != "" {
		env := make([]string, 0, 5)
		for _, name := range []string{
			mesh.OptionNetwork, mesh.OptionSubnet, mesh.OptionSubnetV6, mesh.OptionPublic, mesh.OptionPublicV6,
		} {
			env = append(env, name+"="+o[name])
		}
		if _, err := e.r.command(ctx, command, env, ""); err != nil {
			return err
		}
	}
	e.begun = true
	wanted := leases(want.Peers)
	var errs []error
	for _, node := range slices.Sorted(maps.Keys(e.done)) {
		if l := e.done[node]; wanted[node] != l {
			if err := e.run(ctx, o[mesh.OptionSubnetRemove], l); err != nil {
				errs = append(errs, err)
				continue
			}
			delete(e.done, node)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(wanted)) {
		if _, there := e.done[node]; there {
			continue
		}
		if err := e.run(ctx, o[mesh.OptionSubnetAdd], wanted[node]); err != nil {
			errs = append(errs, err)
			continue
		}
		e.done[node] = wanted[node]
	}
	return errors.Join(errs...)
}

func (e *extension) run(ctx context.Context, command string, l lease) error {
	if command == "" {
		return nil
	}
	out, err := e.r.command(ctx, command, []string{
		mesh.OptionSubnet + "=" + l.subnet, mesh.OptionSubnetV6 + "=" + l.subnetV6, mesh.OptionPublic + "=" + l.public,
		mesh.OptionPublicV6 + "=" + l.publicV6,
	}, l.data)
	if err == nil {
		e.r.cfg.Log.Info("command of the extension has run", "command", command, "subnet", l.subnet, "output", out)
	}
	return err
}

// leases returns the prefixes of each node.
func leases(peers []mesh.TunnelPeer) map[string]lease {
	out := map[string]lease{}
	for _, p := range peers {
		l := out[p.Node]
		if p.CIDR.Addr().Is4() {
			l.subnet, l.public = p.CIDR.String(), p.Endpoint.Addr().String()
		} else {
			l.subnetV6, l.publicV6 = p.CIDR.String(), p.Endpoint.Addr().String()
		}
		if data, ok := p.Options[mesh.OptionData]; ok {
			l.data = data
		}
		out[p.Node] = l
	}
	return out
}
