// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/multinet"
	"github.com/weft-net/weft/internal/netns"
)

const (
	// changeLimit bounds one pod's change.
	changeLimit = 30 * time.Second
	// changeAgain is when what could not be done is tried again.
	changeAgain = 10 * time.Second
)

// follower gives running pods the interfaces that they ask for later, and takes away those that they no longer ask for.
type follower struct {
	cfg      *Config
	log      *slog.Logger
	networks *multinet.Resolver
	news     *news
	pods     *podTable
	verbs    *verbs
}

// follow attaches running pods to what they ask for now, until ctx ends.
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
			f.tellEdited(label)
		}
		f.compare(ctx, c, retry)
	}
}

// compare looks for pods that ask for something else than they were given.
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
				f.log.Warn("networks of a running pod", "pod", p.ref.String(), "err", err)
			}
		}
	}
}

// static tells whether the kubelet has the pod from elsewhere than the cluster, which then knows it by another uid.
func static(pod model.Pod) bool {
	source := pod.Annotations["kubernetes.io/config.source"]
	return source != "" && source != "api"
}

// change attaches and detaches what is other than the pod asks for. It goes on after an error. On the first look at a
// pod that an agent before has attached, a status that was not written any more is written.
func (f *follower) change(ctx context.Context, p *podState, pod model.Pod, first bool) error {
	p.turn.Lock()
	defer p.turn.Unlock()
	if p.gone.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, changeLimit)
	defer cancel()
	defer context.AfterFunc(p.gone, cancel)()
	records, err := recorded(f.cfg.Memory, p.containerID)
	if err != nil || len(records) == 0 || !records[0].Request.Origin.Primary {
		return err
	}
	list, doubts, err := multinet.ParseSelections(multinet.NetworksKey, pod.Annotations[multinet.NetworksKey],
		pod.Namespace)
	if err != nil {
		f.news.event(p.ref, multinet.Failed(err))
		return err
	}
	held, have, others, devices := heldOf(records)
	remove, add, err := multinet.Compare(have, list, others)
	if err != nil {
		f.news.event(p.ref, multinet.Failed(err))
		return err
	}
	for _, text := range doubts {
		f.news.event(p.ref, multinet.Doubt(text))
	}
	var errs []error
	for _, i := range slices.Backward(remove) {
		errs = append(errs, f.detach(ctx, p, held[i]))
	}
	for _, w := range add {
		errs = append(errs, f.attachFurther(ctx, p, pod, records[0], w, devices))
	}
	stale := first && !saysStatus(pod, records)
	if len(remove)+len(add) > 0 || stale {
		if records, err = recorded(f.cfg.Memory, p.containerID); err == nil {
			f.news.status(p.ref, gotOf(records))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// saysStatus tells whether the pod's annotation says what the records say.
func saysStatus(pod model.Pod, records []attach.Record) bool {
	text, err := multinet.Status(gotOf(records))
	return err != nil || pod.Annotations[multinet.StatusKey] == text
}

func (f *follower) detach(ctx context.Context, p *podState, r attach.Record) error {
	err := f.cfg.Attacher.DelAll(ctx, []attach.Job{{Network: r.Network, Request: r.Request}})[0]
	if err != nil {
		err = fmt.Errorf("network %s: detach %s: %w", r.Request.Origin.Network, r.Request.IfName, err)
		f.news.event(p.ref, multinet.Failed(err))
		return err
	}
	multinet.DropDeviceInfo(r.Request.Origin.DeviceFile)
	f.news.event(p.ref, multinet.Removed(r.Request.IfName, r.Request.Origin.Network))
	return nil
}

// attachFurther attaches a running pod to one more network.
func (f *follower) attachFurther(
	ctx context.Context, p *podState, pod model.Pod, first attach.Record, w multinet.Wanted, devices []string,
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
				model.Faultf(model.CodeInvalidNetns, "", "namespace %s is another one by now", first.Request.Netns))
		}
		if err := a.KeepDeviceInfo(); err != nil {
			return model.Result{}, a, err
		}
		results, err := f.verbs.attachAll(ctx, []multinet.Attachment{a}, ns)
		if err != nil {
			dropDevices([]multinet.Attachment{a})
			return model.Result{}, a, fmt.Errorf("network %s: %w", a.Label, err)
		}
		return results[0], a, nil
	}()
	if err != nil {
		if p.gone.Err() == nil {
			f.news.event(p.ref, multinet.Failed(err))
		}
		return err
	}
	if e, ok := multinet.Added(a.Request.IfName, a.Label, result); ok {
		f.news.event(p.ref, e)
	}
	return nil
}

// edited are the networks whose configuration is another than last time; before is brought up to date.
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

// tellEdited tells the pods of a network that they keep it as it was.
func (f *follower) tellEdited(label string) {
	for _, states := range f.pods.all() {
		for _, p := range states {
			records, err := recorded(f.cfg.Memory, p.containerID)
			if err != nil {
				f.log.Warn("networks of a running pod", "pod", p.ref.String(), "err", err)
				continue
			}
			for _, r := range records {
				if r.Request.Origin.Network == label {
					f.news.event(p.ref, multinet.Edited(r.Request.IfName, label))
				}
			}
		}
	}
}
