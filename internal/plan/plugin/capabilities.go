// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Capabilities are the optional interfaces of a planner. A planner returns all of them in one value; what is not in it
// is never called. The zero value implements none and needs nothing of the node. Gates, AddressRequest, Unmanaged and
// DSCP get an input that has the configuration and the request only.
type Capabilities struct {
	// MakesInterface marks a plugin that creates the container's interface.
	MakesInterface bool
	Readiness      Readier
	Check          Expecter
	Trace          Tracer
	// Gates returns the URLs that must answer before the ADD of a container continues.
	Gates func(in Input) ([]string, error)
	// AddressRequest returns what a pod requests from IPAM.
	AddressRequest func(in Input) (model.AddressRequest, error)
	// Unmanaged returns the addresses of a pod outside IPAM, and its floating IPs.
	Unmanaged func(in Input) []netip.Addr
	// DSCP returns the code point (RFC 2474) of the pod's packets that leave the cluster. An attachment does not know the
	// cluster's prefixes: the mesh sets the code point.
	DSCP func(in Input) (uint8, bool)
}

// Readier is implemented by planners that need something of the node: a link, a program, a service.
type Readier interface {
	// ReadyQueries returns the queries that Ready needs; the input has the configuration.
	ReadyQueries(in Input) []state.Query
	// Ready returns an error that names what is missing; the input has the configuration and the answers.
	Ready(in Input) error
}

// Expecter is implemented by planners whose expected state follows from the configuration: for the CHECK of an
// attachment without a record.
type Expecter interface {
	// ExpectQueries returns the queries that Expect needs.
	ExpectQueries(in Input) []state.Query
	Expect(in Input) (state.Fragment, error)
}

// Tracer is implemented by planners that find what the reference plugin of the same name left, for the DEL of an
// attachment without a record. It uses as much of the configuration as is valid: after an ADD that was rejected the
// runtime sends a DEL with the same configuration, and continues with the earlier plugins of the list only if that
// succeeds.
type Tracer interface {
	// Trace returns the queries that Traces needs.
	Trace(in Input) []state.Query
	// Traces returns what was found: a fragment to remove, the previous settings to restore, a file to delete.
	Traces(in Input) Step
}
