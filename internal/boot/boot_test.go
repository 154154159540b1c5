// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"regexp"
	"testing"
)

// TestID: the kernel's boot ID is a UUID, and the same at each call.
func TestID(t *testing.T) {
	first, err := ID()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ID()
	if err != nil || again != first ||
		!regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(first) {
		t.Errorf("%q, then %q, %v", first, again, err)
	}
}
