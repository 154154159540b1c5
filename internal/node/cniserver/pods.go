// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/multinet"
)

// Pods is the feed of this node's pods and their annotations.
type Pods interface {
	// Subscribe returns a channel that holds a token after a change, and a function that ends the subscription.
	Subscribe() (<-chan struct{}, func())
	// Cluster returns the latest snapshot, nil before the first.
	Cluster() *model.Cluster
}

// podTable has the sandboxes of pods whose annotation may change.
type podTable struct {
	mu   sync.Mutex
	pods map[string]*podState // by container
}

// podState is one sandbox.
type podState struct {
	containerID string
	ref         model.PodRef
	// asked is the annotation that was handled last; known is false if that is not remembered.
	asked string
	known bool
	// failed reports that some of it could not be done.
	failed bool

	// changing is locked while the pod's networks are changed.
	changing sync.Mutex
	gone     context.Context // ends when the pod's DEL comes
	end      context.CancelFunc
}

func (t *podTable) put(containerID string, ref model.PodRef, asked string, known bool) {
	p := &podState{containerID: containerID, ref: ref, asked: asked, known: known}
	p.gone, p.end = context.WithCancel(context.Background())
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pods == nil {
		t.pods = map[string]*podState{}
	}
	if old := t.pods[containerID]; old != nil {
		old.end()
	}
	t.pods[containerID] = p
}

// drop removes a sandbox, and waits until its networks are not being changed any more.
func (t *podTable) drop(containerID string) {
	t.mu.Lock()
	p := t.pods[containerID]
	delete(t.pods, containerID)
	t.mu.Unlock()
	if p != nil {
		p.end()
		p.changing.Lock()
		defer p.changing.Unlock()
	}
}

// all returns the sandboxes by pod.
func (t *podTable) all() map[string][]*podState {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[string][]*podState, len(t.pods))
	for _, p := range t.pods {
		out[p.ref.String()] = append(out[p.ref.String()], p)
	}
	return out
}

// remember fills the table with the attachments from before the agent's restart.
func (t *podTable) remember(records []attach.Record) {
	for _, r := range records {
		if o := r.Request.Origin; o != nil && o.Primary && !o.SinglePlugin && r.Stage == attach.Done {
			t.put(r.Request.ContainerID, o.Pod, "", false)
		}
	}
}

// recorded returns the attachments of a sandbox that are known to be of a pod, in the order in which they were created.
func recorded(m Records, containerID string) ([]attach.Record, error) {
	keys, err := m.Keys(containerID)
	if err != nil {
		return nil, err
	}
	var all []attach.Record
	for _, k := range keys {
		r, ok, err := m.Get(k)
		if err != nil {
			return nil, err
		}
		if ok && r.Stage == attach.Done && r.Request.Origin != nil && !r.Request.Origin.SinglePlugin && r.Result != nil {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b attach.Record) int {
		if a.Request.Origin.Primary != b.Request.Origin.Primary {
			return cmp.Compare(rank(a), rank(b))
		}
		return cmp.Compare(a.Serial, b.Serial)
	})
	return all, nil
}

func rank(r attach.Record) int {
	if r.Request.Origin.Primary {
		return 0
	}
	return 1
}

// gotOf returns the network status of the records.
func gotOf(records []attach.Record) []multinet.Got {
	all := make([]multinet.Got, 0, len(records))
	for _, r := range records {
		all = append(all, multinet.NewGot(r.Request.Origin, r.Network, *r.Result))
	}
	return all
}

// heldOf returns the records whose networks the pod selected, and the interfaces of the others.
func heldOf(records []attach.Record) (held []attach.Record, list []multinet.Current, others, devices []string) {
	for _, r := range records {
		o := r.Request.Origin
		if o.Device != "" {
			devices = append(devices, o.Device)
		}
		if len(o.Selection) == 0 || bytesNull(o.Selection) {
			others = append(others, r.Request.IfName)
			continue
		}
		held = append(held, r)
		list = append(list, multinet.Current{IfName: r.Request.IfName, Selection: o.Selection})
	}
	return held, list, others, devices
}

func bytesNull(b json.RawMessage) bool { return string(b) == "null" }
