// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"testing"
	"time"
)

// The undo of an ADD whose time is over is short, that of one that merely failed is not.
func TestPatient(t *testing.T) {
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	notified, expire := context.WithCancelCause(t.Context())
	expire(errors.Join(errors.New("the call took too long"), context.DeadlineExceeded))
	for name, tc := range map[string]struct {
		ctx  context.Context
		want time.Duration
	}{"failed": {t.Context(), undoTime}, "late": {late, lateUndoTime}, "told that it is late": {notified, lateUndoTime}} {
		ctx, cancel := detached(tc.ctx)
		end, ok := ctx.Deadline()
		if left := time.Until(end); !ok || ctx.Err() != nil || left > tc.want || left < tc.want-time.Minute/60*2 {
			t.Errorf("%s: %v left, want %v", name, left, tc.want)
		}
		cancel()
	}
}
