// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// endpointSlices are the parts of Services' endpoints.
type endpointSlices map[setKey]model.EndpointSlice

// put sets a part of a Service's endpoints, and reports whether that changed anything.
func (es endpointSlices) put(in model.EndpointSlice) bool {
	key := setKey{in.Namespace, in.Name}
	was, is := es[key]
	es[key] = in
	return !is || was.Service != in.Service || !slices.Equal(was.Endpoints, in.Endpoints)
}

// of returns the endpoints of a Service, sorted.
func (es endpointSlices) of(namespace, name string) (out []element) {
	for key, s := range es {
		if key.namespace != namespace || s.Service != name {
			continue
		}
		for _, e := range s.Endpoints {
			out = append(out, element{e.Addr, e.Protocol, e.Port})
		}
	}
	slices.SortFunc(out, element.compare)
	return slices.Compact(out)
}
