// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"strings"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

// foreign returns why a link of a wanted name may not be changed, nil if it may. A link with the wanted mark is ours. A
// link without any mark is ours when it has the MAC that the plan chose: its maker was killed before setting the mark,
// or is about to set it.
func foreign(want state.Link, have link.Found) error {
	if want.MovedFrom != nil && have.Alias != want.MovedFrom.Name {
		return fmt.Errorf("link %s: not the one from %s: %w", want.Name, want.MovedFrom.Name, ErrForeign)
	}
	if want.Kind == "" {
		return nil
	}
	if have.Kind != want.Kind {
		kind := string(have.Kind)
		if kind == "" {
			kind = "physical or loopback"
		}
		return fmt.Errorf("link %s: a link of kind %s %w", want.Name, kind, ErrForeign)
	}
	switch {
	case want.Alias == "" || want.Alias == have.Alias || want.Adopt && have.Alias == "":
		return nil
	case have.Alias != "" && want.Shared:
		return nil // it was adopted, or another plan marked it
	case have.Alias != "":
		return fmt.Errorf("link %s: marked %q: %w", want.Name, have.Alias, ErrForeign)
	case want.MAC.IsZero() || want.MAC != have.MAC:
		return fmt.Errorf("link %s: has no mark and another MAC address: %w", want.Name, ErrForeign)
	}
	return nil
}

// weftMade reports whether weft made a shared link: it has the mark, or its maker was killed before setting it and it
// has the MAC that was chosen for it.
func weftMade(want state.Link, have link.Found) bool {
	if have.Alias == "" {
		return strings.HasPrefix(want.Alias, SharedMark) && !want.MAC.IsZero() && want.MAC == have.MAC
	}
	return strings.HasPrefix(have.Alias, SharedMark)
}

// replaced reports whether a link without a mark is in the place of the wanted one, and may be replaced.
func replaced(want state.Link, have link.Found) bool {
	return want.ReplaceUnmarked && have.Kind == want.Kind && have.Alias == "" && want.Alias != ""
}
