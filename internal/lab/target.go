// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox"
	"github.com/weft-net/weft/internal/vm/launch"
	"github.com/weft-net/weft/internal/vm/qemu"
)

// await makes a pod on the other node that awaits the machine, and a machine in it without a state yet.
func (j *journey) await(ctx context.Context, l Layout) (there launch.Status, pod string, err error) {
	ctx, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	p, err := j.writePod(ctx)
	if err != nil {
		return there, "", err
	}
	pod = p.Namespace + "/" + p.Name
	if err := j.allow(ctx, p.Name); err != nil {
		return there, pod, fmt.Errorf("machine %s: %w", j.here.Key(), err)
	}
	box, err := j.up.runPod(ctx, j.store, p)
	if err == nil {
		err = publish(ctx, j.store, l.find(p.Node), box)
	}
	if err != nil {
		return there, pod, fmt.Errorf("pod %s on %s: %w", pod, p.Node, err)
	}
	died := make(chan error, 1)
	target := machine{Launch: j.conf, raw: j.raw, node: j.Node}
	dir, err := j.up.startMachine(target, box, func(err error) { died <- err }, "--incoming")
	if err != nil {
		return there, pod, err
	}
	for {
		st, found, err := launch.Read(dir)
		switch {
		case err != nil:
			return there, pod, err
		case found:
			there = st
		}
		if there.Phase == launch.Running {
			return there, pod, nil
		}
		select {
		case err := <-died:
			return launch.Status{}, pod, err
		case <-ctx.Done():
			return there, pod, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// writePod writes the target's pod down, under the first name that is free.
func (j *journey) writePod(ctx context.Context) (model.Pod, error) {
	for n := 2; ; n++ {
		name := fmt.Sprintf("%s-%d", launch.PodName(j.here.Name), n)
		if _, err := j.store.Get(store.PodKey(j.here.Namespace, name)); err == nil {
			continue
		}
		conf := j.conf
		conf.Node = j.Node
		text, err := launch.Target(conf, name, fmt.Sprintf("%s-to-%s", j.here.Name, j.Node), []string{"sleep", "infinity"})
		if err != nil {
			return model.Pod{}, err
		}
		o, err := store.NewObject(text)
		if err == nil {
			_, err = j.store.Create(ctx, o)
		}
		if err != nil {
			return model.Pod{}, err
		}
		return j.placed(ctx, name)
	}
}

// placed gives the target's pod its uid.
func (j *journey) placed(ctx context.Context, name string) (model.Pod, error) {
	pods, err := j.Dir.pods()
	if err != nil {
		return model.Pod{}, err
	}
	for _, p := range pods {
		if p.Namespace == j.here.Namespace && p.Name == name {
			_, err := j.store.Modify(ctx, store.PodKey(p.Namespace, p.Name), placed(p))
			return p, err
		}
	}
	return model.Pod{}, fmt.Errorf("pod %s/%s: %w", j.here.Namespace, name, store.ErrNotFound)
}

// end ends a machine on a node without asking its guest, and its pod. Each may not be there.
func (j *journey) end(ctx context.Context, st launch.Status, node, pod string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if st.Dir != "" && st.Runner.Alive() {
		if err := qemu.Quit(ctx, st.Dir); err != nil {
			return fmt.Errorf("machine %s on %s: %w", st.Key(), node, err)
		}
		for st.Runner.Alive() {
			select {
			case <-ctx.Done():
				return fmt.Errorf("machine %s on %s does not end: %w", st.Key(), node, ctx.Err())
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	if pod == "" {
		return nil
	}
	return j.endPod(ctx, node, pod)
}

func (j *journey) endPod(ctx context.Context, node, pod string) error {
	namespace, name, _ := strings.Cut(pod, "/")
	boxes, now := j.Dir.Sandboxes(node), time.Duration(0)
	err := boxes.Stop(ctx, namespace, name, &now, true)
	var f *model.Fault
	if errors.As(err, &f) && f.Code == model.CodeUnknownContainer {
		err = nil
	}
	if err == nil {
		err = boxes.Watch(ctx, namespace, name, func(d *sandbox.Detail) (bool, error) { return d == nil, nil })
	}
	if err == nil {
		err = j.store.Delete(ctx, store.PodKey(namespace, name), "")
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("pod %s on %s: %w", pod, node, err)
	}
	return nil
}

// find finds the machine where it runs: what a migration that was killed has left is another one of that name, which
// does not.
func (j *journey) find(ctx context.Context, st Status) (here launch.Status, err error) {
	var names, not []string
	for _, m := range st.Machines {
		names = append(names, m.Key())
		if m.Key() != j.Machine && m.Name != j.Machine {
			continue
		}
		state, err := stateOf(ctx, m)
		switch {
		case err != nil:
			not = append(not, fmt.Sprintf("on %s: %v", m.Node, err))
		case state != "running":
			not = append(not, fmt.Sprintf("on %s it is %s", m.Node, state))
		case here.Name != "" && here.Key() != m.Key():
			return here, model.Faultf(model.CodeInvalidConf, "write NAMESPACE/NAME", "%q is the name of several: %s and %s",
				j.Machine, here.Key(), m.Key())
		default:
			here = m
		}
	}
	switch {
	case here.Name != "":
		return here, nil
	case len(not) > 0:
		return here, model.Faultf(model.CodeInvalidEnv, "see `weft lab status`", "machine %s does not run: %s", j.Machine,
			strings.Join(not, "; "))
	}
	return here, model.Faultf(model.CodeInvalidConf,
		fmt.Sprintf("there are %v; machines come with --from of `weft lab up`", names), "no machine is called %q", j.Machine)
}

// stateOf is what the hypervisor says of a machine.
func stateOf(ctx context.Context, m launch.Status) (string, error) {
	if m.Phase != launch.Running {
		return string(m.Phase), nil
	}
	ctx, cancel := context.WithTimeout(ctx, guestTry)
	defer cancel()
	q, err := qemu.Control(ctx, m.Dir)
	if err != nil {
		return "", err
	}
	defer q.Close()
	return q.State(ctx)
}

// tidy takes away what a migration of the machine that was killed has left: pods around it in which it does not run.
func (j *journey) tidy(ctx context.Context, st Status) error {
	for _, p := range st.Pods {
		pod := p.Namespace + "/" + p.Name
		if pod == j.here.Pod || p.Namespace != j.here.Namespace || p.Annotations[launch.DomainNote] != j.here.Name {
			continue
		}
		var left launch.Status
		for _, m := range st.Machines {
			if m.Pod == pod && m.Phase != launch.Dead {
				left = m
			}
		}
		j.Say("taking away pod %s on %s, where machine %s does not run", pod, p.Node, j.here.Key())
		if err := j.end(ctx, left, p.Node, pod); err != nil {
			return err
		}
	}
	return nil
}

// witness is who holds a connection to a machine: the node or pod of a name, or else a pod or a node that the machine
// neither leaves nor goes to, or else the node that it leaves.
func (st Status) witness(name string, m launch.Status, to string) (Place, error) {
	if name != "" {
		return st.Find(name)
	}
	for _, p := range st.Pods {
		if p.Node != m.Node && p.Node != to && !p.HostNetwork && !p.over() && !st.around(p) && p.problem() == "" {
			return st.Find(p.Namespace + "/" + p.Name)
		}
	}
	for _, n := range st.Nodes {
		if n.Name != m.Node && n.Name != to {
			return st.Find(n.Name)
		}
	}
	return st.Find(m.Node)
}
