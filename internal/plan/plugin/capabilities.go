// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Capabilities are what a planner can do beside planning. A planner names them all in one value: what is not named
// there is never asked for. The zero value can nothing more, and needs nothing of the node. Of an input Gates, Wishes,
// Brought and DSCP have the configuration and the request.
type Capabilities struct {
	// MakesInterface: the plugin makes the container's interface.
	MakesInterface bool
	Readiness      Readier
	Check          Expecter
	Trace          Tracer
	// Gates are the URLs of what a container's ADD waits for.
	Gates func(in Input) ([]string, error)
	// Wishes are what a pod says of the addresses that IPAM gives it.
	Wishes func(in Input) (model.AddressWishes, error)
	// Brought are addresses that a pod brings along and no IPAM gave, or that are to lead to it.
	Brought func(in Input) []netip.Addr
	// DSCP is the code point (RFC 2474) that a pod asks for on its packets to the outside of the cluster. The cluster is
	// nothing that an attachment knows: others set it.
	DSCP func(in Input) (uint8, bool)
}

// Readier is a planner that needs something of the node: a link, a program, a service.
type Readier interface {
	// ReadyQueries asks what must be known; of the input it has the configuration.
	ReadyQueries(in Input) []state.Query
	// Ready says what is missing; of the input it has the configuration and the answers.
	Ready(in Input) error
}

// Expecter is a planner whose configuration alone says what must be there: for the CHECK of an attachment that nothing
// is recorded of.
type Expecter interface {
	// ExpectQueries asks what must be known for that.
	ExpectQueries(in Input) []state.Query
	Expect(in Input) (state.Fragment, error)
}

// Tracer is a planner that finds what the reference plugin of its name left, for the DEL of an attachment that nothing
// is recorded of. It goes by as much of the configuration as is valid: an ADD that was refused is followed by a DEL
// with the same configuration, and the runtime goes on to the plugins before this one only if that succeeds.
type Tracer interface {
	// Trace says what must be known for that.
	Trace(in Input) []state.Query
	// Traces is what was found: a fragment to be removed, what to give back then, a file to be taken away.
	Traces(in Input) Step
}
