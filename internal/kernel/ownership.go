// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"strings"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

// foreign tells why a link of a wanted name is not ours to change, nil when it is. Ours is what bears the wanted mark.
// One without any mark is ours when it has the MAC that the plan chose: whoever made it was killed before the mark, or
// is about to set it.
func foreign(want state.Link, have link.Found) error {
	if want.From != nil && have.Alias != want.From.Name {
		return fmt.Errorf("link %s: not the one from %s: %w", want.Name, want.From.Name, ErrForeign)
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
	case want.Alias == "" || want.Alias == have.Alias || want.Adopted && have.Alias == "":
		return nil
	case have.Alias != "" && want.Shared:
		return nil // it was adopted, or has its mark from another plan
	case have.Alias != "":
		return fmt.Errorf("link %s: marked %q: %w", want.Name, have.Alias, ErrForeign)
	case want.MAC.IsZero() || want.MAC != have.MAC:
		return fmt.Errorf("link %s: has no mark and another MAC address: %w", want.Name, ErrForeign)
	}
	return nil
}

// weftMade tells whether weft made a shared link: it is marked, or it was to be and has the MAC that was chosen for it,
// because who made it was killed before the mark.
func weftMade(want state.Link, have link.Found) bool {
	if have.Alias == "" {
		return strings.HasPrefix(want.Alias, SharedMark) && !want.MAC.IsZero() && want.MAC == have.MAC
	}
	return strings.HasPrefix(have.Alias, SharedMark)
}

// replaced tells whether a link that stands in the wanted one's place is nobody's.
func replaced(want state.Link, have link.Found) bool {
	return want.Replaces && have.Kind == want.Kind && have.Alias == "" && want.Alias != ""
}
