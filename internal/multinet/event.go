// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// The reasons of events. Those of Multus have its names.
const (
	ReasonAdded   = "AddedInterface"
	ReasonRemoved = "RemovedInterface"
	ReasonUnknown = "NoNetworkFound"
	ReasonFailed  = "FailedNetwork"
	ReasonWarning = "NetworkWarning"
)

// Added returns the event of a new interface; none if the network created none.
func Added(ifName, label string, r model.Result) (model.Event, bool) {
	ips := make([]string, 0, len(r.IPs))
	for _, ip := range r.IPs {
		ips = append(ips, ip.Address.String())
	}
	e := model.Event{
		Reason: ReasonAdded, Message: fmt.Sprintf("Add %s [%s] from %s", ifName, strings.Join(ips, " "), label),
	}
	return e, len(r.Interfaces) > 0 || len(ips) > 0
}

// Removed returns the event of an interface that was removed from a running pod.
func Removed(ifName, label string) model.Event {
	return model.Event{Reason: ReasonRemoved, Message: fmt.Sprintf("Remove %s of %s", ifName, label)}
}

// Failed returns the event with the reason why the pod does not get its networks.
func Failed(err error) model.Event {
	e := model.Event{Warning: true, Reason: ReasonFailed, Message: oneLine(err)}
	if errors.Is(err, store.ErrNotFound) {
		e.Reason = ReasonUnknown
	}
	return e
}

// Warning returns the event of something in an annotation that is probably not intended.
func Warning(text string) model.Event {
	return model.Event{Warning: true, Reason: ReasonWarning, Message: text}
}

// maxMessage is the longest message of an event that Kubernetes accepts, in bytes.
const maxMessage = 1024

func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > maxMessage {
		text = text[:maxMessage-3] + "..."
	}
	return text
}

// ReasonEdited is that of Edited.
const ReasonEdited = "NetworkEdited"

// Edited returns the event of a network that was changed while a pod is attached to it.
func Edited(ifName, label string) model.Event {
	return model.Event{
		Reason: ReasonEdited,
		Message: fmt.Sprintf("Network %s was edited: %s stays as it is, new attachments get the new configuration",
			label, ifName),
	}
}
