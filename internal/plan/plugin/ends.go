// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// ends are the container's interface, which an earlier plugin made, and its other end on the node, which has no name
// where there is none (macvlan, a device).
type ends struct {
	pod, host state.Link
}

// endsQueries asks for what the chain's plan does not tell.
func endsQueries(in Input) []state.Query {
	if _, planned := in.plannedEnds(); planned {
		return nil
	}
	return []state.Query{{Space: state.Pod, Link: in.Request.IfName}, {Space: state.Pod, OtherEnd: in.Request.IfName}}
}

// ends finds the container's interface: first in what was planned, since that may not be made yet.
func (in Input) ends() (ends, error) {
	if e, planned := in.plannedEnds(); planned {
		return e, nil
	}
	pod := in.Answers[state.Query{Space: state.Pod, Link: in.Request.IfName}]
	if !pod.Found {
		return ends{}, model.Faultf(model.CodeInvalidConf, "put the plugin behind the one that makes the interface",
			"plugin %s: interface %q does not exist in %s", in.Conf.Type, in.Request.IfName, in.Request.Netns)
	}
	return ends{pod: pod.Link, host: in.Answers[state.Query{Space: state.Pod, OtherEnd: in.Request.IfName}].Link}, nil
}

func (in Input) plannedEnds() (e ends, planned bool) {
	named := func(space state.Space, name string) (state.Link, bool) {
		i := slices.IndexFunc(space.Links, func(l state.Link) bool {
			return l.Name == name && (l.Kind != "" || l.From != nil)
		})
		if i < 0 {
			return state.Link{}, false
		}
		return space.Links[i], true
	}
	if e.pod, planned = named(in.Chain.Fragment.Pod, in.Request.IfName); !planned {
		return e, false
	}
	if e.pod.Peer != nil && e.pod.Peer.Space == state.Host {
		e.host, _ = named(in.Chain.Fragment.Host, e.pod.Peer.Name)
	}
	return e, true
}

// prev is the result of the plugins before; a plugin that only changes what they made needs one.
func (in Input) prev() (model.Result, error) {
	if in.Chain.Prev == nil {
		return model.Result{}, model.Faultf(model.CodeInvalidConf,
			"put it into a list, behind the plugin that makes the interface",
			"plugin %s: prevResult is missing", in.Conf.Type)
	}
	return *in.Chain.Prev, nil
}
