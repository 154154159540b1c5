// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/multinet"
	"github.com/weft-net/weft/internal/netns"
)

const (
	// changeLimit limits one pod's change.
	changeLimit = 30 * time.Second
	// changeAgain is the pause before a failed change is retried.
	changeAgain = 10 * time.Second
)

// follower attaches running pods to networks that are added to their annotation, and detaches removed ones.
type follower struct {
	cfg      *Config
	log      *slog.Logger
	networks *multinet.Resolver
	reporter *statusReporter
	pods     *podTable
	verbs    *verbs
}

// follow keeps the attachments of running pods equal to their annotations until ctx ends.
func (f *follower) follow(ctx context.Context) {
	changed, cancel := f.cfg.Pods.Subscribe()
	defer cancel()
	again := time.NewTicker(changeAgain)
	defer again.Stop()
	networks := map[string]string{}
	for {
		retry := false
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again.C:
			retry = true
		}
		c := f.cfg.Pods.Cluster()
		if c == nil {
			continue
		}
		for _, label := range edited(networks, c.Networks) {
			f.reportEdited(label)
		}
		f.compare(ctx, c, retry)
	}
}

// compare finds the pods whose annotation differs from their attachments, and changes them.
func (f *follower) compare(ctx context.Context, c *model.Cluster, retry bool) {
	states := f.pods.all()
	for _, pod := range c.Pods {
		if pod.Node != c.Self || len(states) == 0 {
			continue
		}
		for _, p := range states[pod.Namespace+"/"+pod.Name] {
			if p.ref.UID != "" && p.ref.UID != pod.UID && !static(pod) {
				continue
			}
			asked := pod.Annotations[multinet.NetworksKey]
			if p.known && p.asked == asked && (!p.failed || !retry) {
				continue
			}
			again, first := p.known && p.asked == asked, !p.known
			p.asked, p.known = asked, true
			err := f.change(ctx, p, pod, first)
			p.failed = err != nil
			if err != nil && ctx.Err() == nil && !again {
				f.log.Warn("networks of a running pod could not be changed", "pod", p.ref.String(), "err", err)
			}
		}
	}
}

// static reports whether the kubelet has the pod from another source than the API server, where its UID differs.
func static(pod model.Pod) bool {
	source := pod.Annotations["kubernetes.io/config.source"]
	return source != "" && source != "api"
}

// change attaches and detaches the networks that differ. An error does not stop the others. When a pod from before the
// agent's restart is seen first, a missing network status is written.
func (f *follower) change(ctx context.Context, p *podState, pod model.Pod, first bool) error {
	p.changing.Lock()
	defer p.changing.Unlock()
	if p.gone.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, changeLimit)
	defer cancel()
	defer context.AfterFunc(p.gone, cancel)()
	records, err := recorded(f.cfg.Records, p.containerID)
	if err != nil || len(records) == 0 || !records[0].Request.Origin.Primary {
		return err
	}
	list, warnings, err := multinet.ParseSelections(multinet.NetworksKey, pod.Annotations[multinet.NetworksKey],
		pod.Namespace)
	if err != nil {
		f.reporter.event(p.ref, multinet.Failed(err))
		return err
	}
	held, have, others, devices := heldOf(records)
	remove, add, err := multinet.Compare(have, list, others)
	if err != nil {
		f.reporter.event(p.ref, multinet.Failed(err))
		return err
	}
	for _, text := range warnings {
		f.reporter.event(p.ref, multinet.Warning(text))
	}
	var errs []error
	for _, i := range slices.Backward(remove) {
		errs = append(errs, f.detach(ctx, p, records[0], held[i]))
	}
	for _, w := range add {
		errs = append(errs, f.attachFurther(ctx, p, pod, records[0], w, devices))
	}
	stale := first && !statusMatches(pod, records)
	if len(remove)+len(add) > 0 || stale {
		if records, err = recorded(f.cfg.Records, p.containerID); err == nil {
			f.reporter.status(p.ref, gotOf(records))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// statusMatches reports whether the pod's network status agrees with the records.
func statusMatches(pod model.Pod, records []attach.Record) bool {
	text, err := multinet.Status(gotOf(records))
	return err != nil || pod.Annotations[multinet.StatusKey] == text
}

func (f *follower) detach(ctx context.Context, p *podState, first, r attach.Record) error {
	err := f.cfg.Attacher.DelAll(ctx, []attach.Job{{Network: r.Network, Request: r.Request}})[0]
	of := callOf(first, cni.Del)
	if err != nil {
		f.verbs.logOf(of).failed(err)
		err = fmt.Errorf("network %s: detach %s: %w", r.Request.Origin.Network, r.Request.IfName, err)
		f.reporter.event(p.ref, multinet.Failed(err))
		return err
	}
	multinet.DropDeviceInfo(r.Request.Origin.DeviceFile)
	f.verbs.logOf(of).deleted(r.Network, r.Request)
	f.reporter.event(p.ref, multinet.Removed(r.Request.IfName, r.Request.Origin.Network))
	return nil
}

// attachFurther attaches a running pod to one more network.
func (f *follower) attachFurther(
	ctx context.Context, p *podState, pod model.Pod, first attach.Record, w multinet.Addition, devices []string,
) error {
	pod.UID = first.Request.Origin.Pod.UID
	result, a, err := func() (model.Result, multinet.Attachment, error) {
		call, err := multinet.Call(first.Request)
		if err != nil {
			return model.Result{}, multinet.Attachment{}, err
		}
		a, err := f.networks.Further(ctx, call, pod, w, devices)
		if err != nil {
			return model.Result{}, a, err
		}
		ns, err := netns.Open(first.Request.Netns)
		if err != nil {
			return model.Result{}, a, err
		}
		defer func() { _ = ns.Close() }()
		if id, err := ns.ID(); err != nil || id != first.NetnsID {
			return model.Result{}, a, errors.Join(err,
				model.Errorf(model.CodeInvalidNetns, "", "namespace %s was replaced", first.Request.Netns))
		}
		if err := a.KeepDeviceInfo(); err != nil {
			return model.Result{}, a, err
		}
		results, err := f.verbs.attachAll(ctx, []multinet.Attachment{a}, ns, nil)
		if err != nil {
			removeDevices([]multinet.Attachment{a})
			return model.Result{}, a, fmt.Errorf("network %s: %w", a.Label, err)
		}
		return results[0], a, nil
	}()
	if err != nil {
		if p.gone.Err() == nil {
			f.reporter.event(p.ref, multinet.Failed(err))
			f.verbs.logOf(callOf(first, cni.Add)).failed(err)
		}
		return err
	}
	f.verbs.logOf(callOf(first, cni.Add)).added(a, result)
	if e, ok := multinet.Added(a.Request.IfName, a.Label, result); ok {
		f.reporter.event(p.ref, e)
	}
	return nil
}

// edited returns the networks whose configuration has changed since the last call, and updates before.
func edited(before map[string]string, now []model.NetworkAttachment) []string {
	var labels []string
	seen := map[string]bool{}
	for _, n := range now {
		label := n.String()
		seen[label] = true
		if was, ok := before[label]; ok && was != n.Config {
			labels = append(labels, label)
		}
		before[label] = n.Config
	}
	for label := range before {
		if !seen[label] {
			delete(before, label)
		}
	}
	return labels
}

// reportEdited creates events on the pods of an edited network: they keep it with its old configuration.
func (f *follower) reportEdited(label string) {
	for _, states := range f.pods.all() {
		for _, p := range states {
			records, err := recorded(f.cfg.Records, p.containerID)
			if err != nil {
				f.log.Warn("attachments of a pod could not be read", "pod", p.ref.String(), "err", err)
				continue
			}
			for _, r := range records {
				if r.Request.Origin.Network == label {
					f.reporter.event(p.ref, multinet.Edited(r.Request.IfName, label))
				}
			}
		}
	}
}
