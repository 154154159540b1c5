// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"log/slog"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/multinet"
)

const (
	// maxNews is how much may wait to be told. What comes beyond is not told: it is logged.
	maxNews = 4096
	// newsLimit is how long telling one thing may take.
	newsLimit = 30 * time.Second
)

// news tells the cluster what became of pods, one after the other, behind the answers.
type news struct {
	to   multinet.Reporter // nil: nobody
	log  *slog.Logger
	wait chan item
}

// item is one thing to be told: a pod's network status, or an event.
type item struct {
	pod    model.PodRef
	status string
	event  model.Event
}

func newNews(to multinet.Reporter, log *slog.Logger) *news {
	n := &news{to: to, log: log}
	if to != nil {
		n.wait = make(chan item, maxNews)
	}
	return n
}

// run tells until ctx ends.
func (n *news) run(ctx context.Context) {
	if n.to == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case i := <-n.wait:
			n.say(ctx, i)
		}
	}
}

func (n *news) say(ctx context.Context, i item) {
	ctx, cancel := context.WithTimeout(ctx, newsLimit)
	defer cancel()
	var err error
	if i.status != "" {
		err = n.to.Annotate(ctx, i.pod, map[string]string{multinet.StatusKey: i.status})
	} else {
		err = n.to.Event(ctx, i.pod, i.event)
	}
	if err != nil && ctx.Err() == nil {
		n.log.Warn("what became of a pod is not told", "pod", i.pod.String(), "reason", i.event.Reason, "err", err)
	}
}

// put queues without waiting.
func (n *news) put(i item) {
	select {
	case n.wait <- i:
	default:
		n.log.Warn("too much to tell", "pod", i.pod.String(), "reason", i.event.Reason, "message", i.event.Message)
	}
}

// failed tells why a pod does not get its networks.
func (n *news) failed(plan multinet.Plan, err error) {
	if plan.Pod != nil {
		n.event(refOf(*plan.Pod), multinet.Failed(err))
	}
}

func (n *news) event(pod model.PodRef, e model.Event) {
	if n.to != nil {
		n.put(item{pod: pod, event: e})
	}
}

// added tells what a pod has got.
func (n *news) added(plan multinet.Plan, results []model.Result) {
	if n.to == nil || plan.Pod == nil {
		return
	}
	pod := refOf(*plan.Pod)
	for _, text := range plan.Doubts {
		n.put(item{pod: pod, event: multinet.Doubt(text)})
	}
	all := make([]multinet.Got, 0, len(results))
	for i, a := range plan.Attachments {
		all = append(all, multinet.Gave(a.Request.Origin, a.Network, results[i]))
		if e, ok := multinet.Added(a.Request.IfName, a.Label, results[i]); ok {
			n.put(item{pod: pod, event: e})
		}
	}
	n.status(pod, all)
}

func (n *news) status(pod model.PodRef, all []multinet.Got) {
	if n.to == nil {
		return
	}
	text, err := multinet.Status(all)
	if err != nil {
		n.log.Error("network status", "pod", pod.String(), "err", err)
		return
	}
	n.put(item{pod: pod, status: text})
}

func refOf(p model.Pod) model.PodRef {
	return model.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// keepDevices puts what is told of devices where plugins look for it.
func keepDevices(all []multinet.Attachment) error {
	for _, a := range all {
		if err := a.KeepDeviceInfo(); err != nil {
			return err
		}
	}
	return nil
}

// dropDevices takes it away again.
func dropDevices(all []multinet.Attachment) {
	for _, a := range all {
		if o := a.Request.Origin; o != nil {
			multinet.DropDeviceInfo(o.DeviceFile)
		}
	}
}
