// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"

	"github.com/weft-net/weft/internal/kernel/netfilter"
	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
)

type (
	// Taken is the error about an element of an nft table that another owner has.
	Taken = nft.Taken
	// BadRule is the error about a rule whose words are not understood.
	BadRule = lang.BadRule
	// Count is what the counters of rules with one comment say.
	Count = netfilter.Count
)

// Errors that callers branch on.
var (
	// ErrUnfit is wrapped by the error about a change of a table that is not as its sender took it for.
	ErrUnfit = errors.New("everything must be written")
	// ErrForeign is wrapped when something of a wanted name exists and is not weft's or of another kind.
	ErrForeign = errors.New("exists and is not weft's")
	// ErrExists is wrapped when a link cannot be made because its name is taken.
	ErrExists = errors.New("exists already")
	// ErrMissing is wrapped when a fragment needs a link that is not there and that it does not make.
	ErrMissing = errors.New("does not exist")
	// ErrGone is wrapped when the pod's namespace is needed and there is none.
	ErrGone = errors.New("the namespace is gone")
	// ErrFull is wrapped when a bridge has no place for another port: it has 1,023.
	ErrFull = errors.New("has no place for another port")
	// ErrUsed is wrapped when nothing more can be made upon a parent: it has a link of that VLAN, or is used otherwise.
	ErrUsed = errors.New("has no place for this link")

	// errRaced is wrapped when somebody else was quicker, or had a link index that was chosen: look again.
	errRaced = errors.New("somebody else was quicker")
)
