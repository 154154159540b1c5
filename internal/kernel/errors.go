// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"

	"github.com/weft-net/weft/internal/kernel/netfilter"
	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
)

type (
	// Taken is the error about an element of an nft table that belongs to another owner.
	Taken = nft.Taken
	// BadRule is the error about a rule that cannot be parsed.
	BadRule = lang.BadRule
	// Count is the sum of the counters of rules with the same comment.
	Count = netfilter.Count
)

// Errors that callers check.
var (
	// ErrStaleTable is wrapped by the error about a change of a table whose content is not what the caller assumed.
	ErrStaleTable = errors.New("table is not as expected")
	// ErrForeign is wrapped when an object of a wanted name exists and is not weft's, or of another kind.
	ErrForeign = errors.New("exists and is not weft's")
	// ErrExists is wrapped when a link cannot be made because its name is taken.
	ErrExists = errors.New("exists already")
	// ErrMissing is wrapped when a fragment needs a link that does not exist and that it does not make.
	ErrMissing = errors.New("does not exist")
	// ErrGone is wrapped when the pod's namespace is needed and does not exist.
	ErrGone = errors.New("the namespace is gone")
	// ErrFull is wrapped when a bridge cannot have another port: the limit is 1,023.
	ErrFull = errors.New("has no free port")
	// ErrUsed is wrapped when a parent cannot have another link: it has one with that VLAN, or is in use otherwise.
	ErrUsed = errors.New("cannot have this link")

	// errRaced is wrapped when another process changed the namespace at the same time, or has a link index that was
	// chosen: read again.
	errRaced = errors.New("another process was faster")
)
