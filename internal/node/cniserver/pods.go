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

// Pods tells what this node's pods ask for now.
type Pods interface {
	// Subscribe gives a channel that holds a token while there is news, and what ends the subscription.
	Subscribe() (<-chan struct{}, func())
	// Cluster is the newest picture, nil before the first.
	Cluster() *model.Cluster
}

// podTable knows the sandboxes of pods that may ask for further networks.
type podTable struct {
	mu   sync.Mutex
	pods map[string]*podState // by container
}

// podState is one sandbox.
type podState struct {
	containerID string
	ref         model.PodRef
	// asked is the annotation that was last dealt with; known is false when that is not remembered.
	asked string
	known bool
	// failed: some of it could not be done.
	failed bool

	// turn is held by who changes the pod's networks.
	turn sync.Mutex
	gone context.Context // ends when the pod's DEL comes
	end  context.CancelFunc
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

// drop forgets a sandbox, and waits until nobody changes its networks any more.
func (t *podTable) drop(containerID string) {
	t.mu.Lock()
	p := t.pods[containerID]
	delete(t.pods, containerID)
	t.mu.Unlock()
	if p != nil {
		p.end()
		p.turn.Lock()
		defer p.turn.Unlock()
	}
}

// all are the sandboxes by their pods.
func (t *podTable) all() map[string][]*podState {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[string][]*podState, len(t.pods))
	for _, p := range t.pods {
		out[p.ref.String()] = append(out[p.ref.String()], p)
	}
	return out
}

// remember fills the table with what an agent before has attached.
func (t *podTable) remember(records []attach.Record) {
	for _, r := range records {
		if o := r.Request.Origin; o != nil && o.Primary && !o.Alone && r.Stage == attach.Done {
			t.put(r.Request.ContainerID, o.Pod, "", false)
		}
	}
}

// recorded are the attachments of a sandbox that are known to be of a pod, in the order in which they were made.
func recorded(m Memory, containerID string) ([]attach.Record, error) {
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
		if ok && r.Stage == attach.Done && r.Request.Origin != nil && !r.Request.Origin.Alone && r.Result != nil {
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

// gotOf is what records tell of a pod's networks.
func gotOf(records []attach.Record) []multinet.Got {
	all := make([]multinet.Got, 0, len(records))
	for _, r := range records {
		all = append(all, multinet.Gave(r.Request.Origin, r.Network, *r.Result))
	}
	return all
}

// heldOf are those of the records that the pod asked for, and the interfaces of the others.
func heldOf(records []attach.Record) (held []attach.Record, list []multinet.Held, others, devices []string) {
	for _, r := range records {
		o := r.Request.Origin
		if o.Device != "" {
			devices = append(devices, o.Device)
		}
		if len(o.Asked) == 0 || bytesNull(o.Asked) {
			others = append(others, r.Request.IfName)
			continue
		}
		held = append(held, r)
		list = append(list, multinet.Held{IfName: r.Request.IfName, Asked: o.Asked})
	}
	return held, list, others, devices
}

func bytesNull(b json.RawMessage) bool { return string(b) == "null" }
