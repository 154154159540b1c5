// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"

	"github.com/weft-net/weft/internal/model"
)

// callLock serializes the calls for one attachment.
type callLock struct {
	token chan struct{}
	users int
}

// lockCalls waits until no other call for the attachment is in progress.
func (k *Manager) lockCalls(ctx context.Context, key model.AttachmentKey) (release func(), err error) {
	k.mu.Lock()
	t := k.turns[key]
	if t == nil {
		t = &callLock{token: make(chan struct{}, 1)}
		k.turns[key] = t
	}
	t.users++
	k.mu.Unlock()
	leave := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(k.turns, key)
		}
	}
	select {
	case t.token <- struct{}{}:
		return func() { <-t.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, model.Errorf(model.CodeTryAgain, "another call is under way", "lease of %s: %w", key, context.Cause(ctx))
	}
}
