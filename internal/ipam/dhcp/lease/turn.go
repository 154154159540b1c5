// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"

	"github.com/weft-net/weft/internal/model"
)

// turn keeps the calls for one attachment apart.
type turn struct {
	token chan struct{}
	users int
}

// turn waits until no other call for the attachment is under way.
func (k *Keeper) turn(ctx context.Context, key model.AttachmentKey) (release func(), err error) {
	k.mu.Lock()
	t := k.turns[key]
	if t == nil {
		t = &turn{token: make(chan struct{}, 1)}
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
		return nil, model.Faultf(model.CodeTryAgain, "another call is under way", "lease of %s: %w", key, context.Cause(ctx))
	}
}
