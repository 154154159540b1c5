// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
)

// Current is an attachment of a running pod that its annotation requested.
type Current struct {
	IfName    string
	Selection json.RawMessage // the selection
}

// Addition is an attachment that a running pod requests and does not have.
type Addition struct {
	Selection Selection
	IfName    string
	Element   int // of the annotation, from 1
}

// Compare returns which attachments to remove (indexes of held) and to add so that a running pod has what its
// annotation requests. Unchanged elements keep their attachment, wherever they are in the list. others are the pod's
// interfaces that no annotation requested.
func Compare(held []Current, list []Selection, others []string) (remove []int, add []Addition, err error) {
	kept := map[int]bool{}
	used := map[string]string{}
	for _, name := range others {
		used[name] = "the node's configuration"
	}
	var open []int
	for i, s := range list {
		words, err := json.Marshal(s)
		if err != nil {
			return nil, nil, fmt.Errorf("network %s: %w", s.Network(), err)
		}
		same := func(k int) bool { return !kept[k] && string(held[k].Selection) == string(words) }
		if k := firstOf(len(held), same); k >= 0 {
			kept[k] = true
			used[held[k].IfName] = "network " + s.Network()
			continue
		}
		open = append(open, i)
	}
	for k := range held {
		if !kept[k] {
			remove = append(remove, k)
		}
	}
	for _, i := range open { // first those that request an interface name
		if name := list[i].Interface; name != "" {
			if by, ok := used[name]; ok {
				return nil, nil, model.Errorf(model.CodeInvalidConf, "give each its own",
					"interface %s: both %s and network %s are to have it",
					name, by, list[i].Network())
			}
			used[name] = "network " + list[i].Network()
		}
	}
	for _, i := range open {
		w := Addition{Selection: list[i], IfName: list[i].Interface, Element: i + 1}
		for n := 1; w.IfName == ""; n++ {
			if name := "net" + strconv.Itoa(n); used[name] == "" {
				w.IfName, used[name] = name, "network "+list[i].Network()
			}
		}
		add = append(add, w)
	}
	return remove, add, nil
}

func firstOf(n int, ok func(int) bool) int {
	for i := range n {
		if ok(i) {
			return i
		}
	}
	return -1
}

// Further returns an additional network of a running pod. The call is that of its first one.
func (r *Resolver) Further(
	ctx context.Context, call cni.Call, pod model.Pod, want Addition, devicesUsed []string,
) (Attachment, error) {
	s, err := ParseSettings(call, r.Root)
	if err != nil {
		return Attachment{}, err
	}
	w := &resolving{r: r, call: call, s: s, pod: &pod, used: devicesUsed}
	src, err := w.selected(ctx, &want.Selection)
	if err != nil {
		return Attachment{}, within(err, fmt.Sprintf("annotation %s: element %d", NetworksKey, want.Element))
	}
	if want.Selection.DefaultRoute != nil {
		return Attachment{}, model.Errorf(model.CodeUnsupportedField, "re-create the pod",
			"annotation %s: element %d: network %s: default-route can only be set when a pod starts, and this one runs", NetworksKey,
			want.Element, src.label)
	}
	const further = 1 // not the first
	src.ifName, src.routes = want.IfName, src.defaultRoute(further, nil)
	a, err := r.attachment(call, s, further, src)
	if err != nil {
		return a, w.locate(err, len(s.Delegates), src)
	}
	a.Request.Origin, err = w.origin(further, src, a)
	return a, err
}

// Call returns the runtime's call of an attachment, for additional ones.
func Call(first model.Request) (cni.Call, error) {
	if first.Origin == nil || len(first.Origin.RuntimeConf) == 0 {
		return cni.Call{}, model.Errorf(model.CodeInternal, "",
			"attachment %s: the runtime's configuration is not recorded", first.Key())
	}
	call := cni.Call{Command: cni.Add, Conf: first.Origin.RuntimeConf, Request: first}
	call.Request.Origin, call.Request.Part = nil, ""
	call.Request.Network = first.Part[:max(len(first.Part)-len(first.IfName)-1, 0)]
	call.Request.Args = slices.Clone(first.Args)
	return call, nil
}
