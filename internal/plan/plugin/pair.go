// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// pairQueries returns the queries for the pair unless the chain plans it.
func pairQueries(in Input) []state.Query {
	if _, planned := in.plannedPair(); planned {
		return nil
	}
	return []state.Query{{Space: state.Pod, Link: in.Request.IfName}, {Space: state.Pod, OtherEnd: in.Request.IfName}}
}

// pair returns the container's interface and its peer: the planned ones, which may not exist yet, or those in the
// kernel.
func (in Input) pair() (pair, error) {
	if e, planned := in.plannedPair(); planned {
		return e, nil
	}
	pod := in.Answers[state.Query{Space: state.Pod, Link: in.Request.IfName}]
	if !pod.Found {
		return pair{}, model.Errorf(model.CodeInvalidConf, "put the plugin after the one that creates the interface",
			"plugin %s: interface %q does not exist in %s", in.Conf.Type, in.Request.IfName, in.Request.Netns)
	}
	return pair{pod: pod.Link, host: in.Answers[state.Query{Space: state.Pod, OtherEnd: in.Request.IfName}].Link}, nil
}

func (in Input) plannedPair() (e pair, planned bool) {
	named := func(space state.Space, name string) (state.Link, bool) {
		i := slices.IndexFunc(space.Links, func(l state.Link) bool {
			return l.Name == name && (l.Kind != "" || l.MovedFrom != nil)
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

// prev returns the result of the earlier plugins, which a plugin that only changes their interface needs.
func (in Input) prev() (model.Result, error) {
	if in.Chain.Prev == nil {
		return model.Result{}, model.Errorf(model.CodeInvalidConf,
			"put it into a list, after the plugin that creates the interface",
			"plugin %s: prevResult is missing", in.Conf.Type)
	}
	return *in.Chain.Prev, nil
}
