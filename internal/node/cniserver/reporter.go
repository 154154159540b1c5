// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/multinet"
)

const (
	// maxReports limits the reports that wait to be sent. Further ones are only logged.
	maxReports = 4096
	// reportLimit limits sending one report.
	reportLimit = 30 * time.Second
)

// statusReporter reports the pods' network status and events to the cluster, one after the other, outside of the calls.
type statusReporter struct {
	to     multinet.Reporter // nil: reports are dropped
	podIPs bool              // Calico's annotations are written, too
	log    *slog.Logger
	wait   chan report
}

// report is one report: annotations of a pod with its network status, or an event.
type report struct {
	pod    model.PodRef
	status map[string]string
	event  model.Event
}

func newStatusReporter(to multinet.Reporter, podIPs bool, log *slog.Logger) *statusReporter {
	n := &statusReporter{to: to, podIPs: podIPs, log: log}
	if to != nil {
		n.wait = make(chan report, maxReports)
	}
	return n
}

// run sends reports until ctx ends.
func (n *statusReporter) run(ctx context.Context) {
	if n.to == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case i := <-n.wait:
			n.send(ctx, i)
		}
	}
}

func (n *statusReporter) send(ctx context.Context, i report) {
	ctx, cancel := context.WithTimeout(ctx, reportLimit)
	defer cancel()
	var err error
	if i.status != nil {
		err = n.to.Annotate(ctx, i.pod, i.status)
	} else {
		err = n.to.Event(ctx, i.pod, i.event)
	}
	if err != nil && ctx.Err() == nil {
		n.log.Warn("report about a pod could not be sent", "pod", i.pod.String(), "reason", i.event.Reason, "err", err)
	}
}

// queue queues a report without blocking.
func (n *statusReporter) queue(i report) {
	select {
	case n.wait <- i:
	default:
		n.log.Warn("report queue is full, and a report is dropped", "pod", i.pod.String(), "reason", i.event.Reason,
			"message", i.event.Message)
	}
}

// failed reports why a pod does not get its networks.
func (n *statusReporter) failed(plan multinet.Plan, err error) {
	if plan.Pod != nil {
		n.event(refOf(*plan.Pod), multinet.Failed(err))
	}
}

func (n *statusReporter) event(pod model.PodRef, e model.Event) {
	if n.to != nil {
		n.queue(report{pod: pod, event: e})
	}
}

// added reports a pod's attachments.
func (n *statusReporter) added(plan multinet.Plan, results []model.Result) {
	if n.to == nil || plan.Pod == nil {
		return
	}
	pod := refOf(*plan.Pod)
	for _, text := range plan.Warnings {
		n.queue(report{pod: pod, event: multinet.Warning(text)})
	}
	all := make([]multinet.Got, 0, len(results))
	for i, a := range plan.Attachments {
		all = append(all, multinet.NewGot(a.Request.Origin, a.Network, results[i]))
		if e, ok := multinet.Added(a.Request.IfName, a.Label, results[i]); ok {
			n.queue(report{pod: pod, event: e})
		}
	}
	switch {
	case !plan.ByMultus:
		n.status(pod, all)
	case n.podIPs && len(multinet.PodIPs(all)) > 0:
		n.queue(report{pod: pod, status: multinet.PodIPs(all)})
	}
}

func (n *statusReporter) status(pod model.PodRef, all []multinet.Got) {
	if n.to == nil {
		return
	}
	text, err := multinet.Status(all)
	if err != nil {
		n.log.Error("network status could not be encoded", "pod", pod.String(), "err", err)
		return
	}
	annotations := map[string]string{multinet.StatusKey: text}
	if n.podIPs {
		maps.Copy(annotations, multinet.PodIPs(all))
	}
	n.queue(report{pod: pod, status: annotations})
}

func refOf(p model.Pod) model.PodRef {
	return model.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// writeDevices writes the files by which plugins find information about devices.
func writeDevices(all []multinet.Attachment) error {
	for _, a := range all {
		if err := a.KeepDeviceInfo(); err != nil {
			return err
		}
	}
	return nil
}

// removeDevices removes these files.
func removeDevices(all []multinet.Attachment) {
	for _, a := range all {
		if o := a.Request.Origin; o != nil {
			multinet.DropDeviceInfo(o.DeviceFile)
		}
	}
}
