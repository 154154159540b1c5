// SPDX-License-Identifier: Apache-2.0

package failpoint

import (
	"errors"
	"testing"
)

func TestAt(t *testing.T) {
	if err := Hook(nil).At("anywhere"); err != nil {
		t.Errorf("without a hook: %v", err)
	}
	full := errors.New("the disk is full")
	var at []string
	h := Hook(func(name string) error {
		at = append(at, name)
		if len(at) == 2 {
			return full
		}
		return nil
	})
	first, second := h.At("before save"), h.At("after save")
	if first != nil || !errors.Is(second, full) || len(at) != 2 || at[0] != "before save" || at[1] != "after save" {
		t.Errorf("at %q: %v, %v", at, first, second)
	}
}
