// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox"
	"github.com/weft-net/weft/internal/vm/launch"
	"github.com/weft-net/weft/internal/vm/qemu"
)

// startTarget runs a pod on the target node, and in it a VM that waits for the migration.
func (j *migrator) startTarget(ctx context.Context, l layout.Layout) (target launch.Status, pod string, err error) {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	p, err := j.createTargetPod(ctx)
	if p.Name != "" {
		pod = p.Namespace + "/" + p.Name
	}
	if err != nil {
		return target, pod, err
	}
	if err := j.authorizeTarget(ctx, p.Name); err != nil {
		return target, pod, fmt.Errorf("VM %s: %w", j.source.Key(), err)
	}
	running, err := j.up.runPod(ctx, j.store, p)
	if err == nil {
		err = writePodStatus(ctx, j.store, l.Find(p.Node), running)
	}
	if err != nil {
		return target, pod, fmt.Errorf("pod %s on %s: %w", pod, p.Node, err)
	}
	died := make(chan error, 1)
	dir, err := j.up.startVM(
		labVM{Launch: j.conf, raw: j.raw, node: j.Node},
		running,
		func(err error) { died <- err },
		"--incoming",
	)
	if err != nil {
		return target, pod, err
	}
	for {
		st, found, err := launch.Read(dir)
		switch {
		case err != nil:
			return target, pod, err
		case found:
			target = st
		}
		if target.Phase == launch.Running {
			return target, pod, nil
		}
		select {
		case err := <-died:
			return launch.Status{}, pod, err
		case <-ctx.Done():
			return target, pod, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// createTargetPod creates the target's pod object under the first free name. After an error the pod has a name if its
// object was created: the caller deletes it.
func (j *migrator) createTargetPod(ctx context.Context) (model.Pod, error) {
	for n := 2; ; n++ {
		name := fmt.Sprintf("%s-%d", launch.PodName(j.source.Name), n)
		if _, err := j.store.Get(store.PodKey(j.source.Namespace, name)); err == nil {
			continue
		}
		conf := j.conf
		conf.Node = j.Node
		text, err := launch.TargetPodManifest(conf, name, fmt.Sprintf("%s-to-%s", j.source.Name, j.Node),
			[]string{"sleep", "infinity"})
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
		p, err := j.bindTargetPod(ctx, name)
		p.Namespace, p.Name = j.source.Namespace, name
		return p, err
	}
}

// bindTargetPod sets the node and the UID of the target's pod.
func (j *migrator) bindTargetPod(ctx context.Context, name string) (model.Pod, error) {
	o, err := j.store.Get(store.PodKey(j.source.Namespace, name))
	if err != nil {
		return model.Pod{}, err
	}
	p, err := o.Pod()
	if err != nil {
		return model.Pod{}, err
	}
	_, err = j.store.Modify(ctx, o.Key, bindPod(p))
	return p, err
}

// stopVM stops a VM on a node without ACPI shutdown, and its pod, as far as they exist.
func (j *migrator) stopVM(ctx context.Context, st launch.Status, node, pod string) error {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	if err := quitVM(ctx, st); err != nil {
		return err
	}
	if pod == "" {
		return nil
	}
	return j.stopPod(ctx, node, pod)
}

// quitVM ends a VM's hypervisor, and waits for the process of the VM.
func quitVM(ctx context.Context, st launch.Status) error {
	if st.Dir == "" || !st.Runner.Alive() {
		return nil
	}
	if err := qemu.Quit(ctx, st.Dir); err != nil {
		return fmt.Errorf("VM %s on %s: %w", st.Key(), st.Node, err)
	}
	for st.Runner.Alive() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("VM %s on %s does not stop: %w", st.Key(), st.Node, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

func (j *migrator) stopPod(ctx context.Context, node, pod string) error {
	namespace, name, _ := strings.Cut(pod, "/")
	runtime, grace := j.Dir.Sandboxes(node), time.Duration(0)
	err := runtime.Stop(ctx, namespace, name, &grace, true)
	var f *model.Error
	if errors.As(err, &f) && f.Code == model.CodeUnknownContainer {
		err = nil
	}
	if err == nil {
		err = runtime.Watch(ctx, namespace, name, func(d *sandbox.Detail) (bool, error) { return d == nil, nil })
	}
	if err == nil {
		err = j.store.Delete(ctx, store.PodKey(namespace, name), "")
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("pod %s on %s: %w", pod, node, err)
	}
	return nil
}

// findVM finds the running VM. A killed migration may have left another VM of the same name, which is not running.
func (j *migrator) findVM(ctx context.Context, st Status) (found launch.Status, err error) {
	var names, stopped []string
	for _, m := range st.VMs {
		names = append(names, m.Key())
		if m.Key() != j.VM && m.Name != j.VM {
			continue
		}
		state, err := hypervisorState(ctx, m)
		switch {
		case err != nil:
			stopped = append(stopped, fmt.Sprintf("on %s: %v", m.Node, err))
		case state != "running":
			stopped = append(stopped, fmt.Sprintf("on %s it is %s", m.Node, state))
		case found.Name != "" && found.Key() != m.Key():
			return found, model.Errorf(model.CodeInvalidConf, "write NAMESPACE/NAME", "%q is ambiguous: %s and %s", j.VM,
				found.Key(), m.Key())
		default:
			found = m
		}
	}
	switch {
	case found.Name != "":
		return found, nil
	case len(stopped) > 0:
		return found, model.Errorf(model.CodeInvalidEnv, "see `weft lab status`", "VM %s is not running: %s", j.VM,
			strings.Join(stopped, "; "))
	}
	hint := "add VMs with --from of `weft lab up`"
	if len(names) > 0 {
		hint = "there are " + strings.Join(names, ", ")
	}
	return found, model.Errorf(model.CodeInvalidConf, hint, "VM %q not found", j.VM)
}

// hypervisorState returns the state of a VM in its hypervisor.
func hypervisorState(ctx context.Context, m launch.Status) (string, error) {
	if m.Phase != launch.Running {
		return string(m.Phase), nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	q, err := qemu.DialControl(ctx, m.Dir)
	if err != nil {
		return "", err
	}
	defer q.Close()
	return q.State(ctx)
}

// cleanUp removes pods that a killed migration of the VM has left.
func (j *migrator) cleanUp(ctx context.Context, st Status) error {
	for _, p := range st.Pods {
		pod := p.Namespace + "/" + p.Name
		if pod == j.source.Pod || p.Namespace != j.source.Namespace ||
			p.Annotations[launch.DomainAnnotation] != j.source.Name {
			continue
		}
		var left launch.Status
		for _, m := range st.VMs {
			if m.Pod == pod && m.Phase != launch.Dead {
				left = m
			}
		}
		j.Logf("removing pod %s on %s, where VM %s is not running", pod, p.Node, j.source.Key())
		if err := j.stopVM(ctx, left, p.Node, pod); err != nil {
			return err
		}
	}
	return nil
}

// choosePeer returns the node or pod with a name, or, if the name is empty, a pod or a node that is neither on the source
// nor on the target node, or else the source node.
func (st Status) choosePeer(name string, m launch.Status, to string) (Location, error) {
	if name != "" {
		return st.Find(name)
	}
	for _, p := range st.Pods {
		if p.Node != m.Node && p.Node != to && !p.HostNetwork && !p.finished() && !st.isVMPod(p) && p.problem() == "" {
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
