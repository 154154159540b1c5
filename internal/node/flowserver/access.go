// SPDX-License-Identifier: Apache-2.0

package flowserver

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/cluster/store/kube"
)

const (
	// trusted is how long an answer of the API server is used. So long a right outlives its removal.
	trusted = time.Minute
	// reviewTime limits one review.
	reviewTime = 5 * time.Second
	// refused is how long a token that no user has is refused without asking again.
	refused = 10 * time.Second
	// maxRemembered bounds the tokens, and a token's namespaces, whose reviews are remembered.
	maxRemembered = 1024
)

// Reviewer asks the API server.
type Reviewer interface {
	// ReviewToken returns whose token it is. The error is kube.ErrNoUser if no user has it.
	ReviewToken(ctx context.Context, token string) (kube.User, error)
	// MayGetFlows reports whether the user may get flows.weft.dev in a namespace; "" is all of them.
	MayGetFlows(ctx context.Context, u kube.User, namespace string) (bool, error)
}

// access remembers reviews.
type access struct {
	api Reviewer
	now func() time.Time

	mu     sync.Mutex
	tokens map[[sha256.Size]byte]*caller
	// refused are tokens that no user has, and until when they are refused.
	refused map[[sha256.Size]byte]time.Time
}

func newAccess(api Reviewer, now func() time.Time) *access {
	return &access{api: api, now: now, tokens: map[[sha256.Size]byte]*caller{}, refused: map[[sha256.Size]byte]time.Time{}}
}

// caller is the user of a token.
type caller struct {
	of    *access
	token string
	user  kube.User

	mu         sync.Mutex
	reviewed   time.Time
	namespaces map[string]answer
}

type answer struct {
	allowed bool
	at      time.Time
}

// knows reports whether a token has been reviewed: the API server need not be asked about it now.
func (a *access) knows(token string) bool {
	key := sha256.Sum256([]byte(token))
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tokens[key] != nil || a.now().Before(a.refused[key])
}

// caller returns the user of a token.
func (a *access) caller(ctx context.Context, token string) (*caller, error) {
	key := sha256.Sum256([]byte(token))
	a.mu.Lock()
	c := a.tokens[key]
	isRefused := a.now().Before(a.refused[key])
	a.mu.Unlock()
	if c == nil && isRefused {
		return nil, fmt.Errorf("token: %w", kube.ErrNoUser)
	}
	if c == nil {
		c = &caller{of: a, token: token, namespaces: map[string]answer{}}
	}
	if err := c.valid(ctx); err != nil {
		a.mu.Lock()
		delete(a.tokens, key)
		if errors.Is(err, kube.ErrNoUser) {
			if len(a.refused) >= maxRemembered {
				clear(a.refused)
			}
			a.refused[key] = a.now().Add(refused)
		}
		a.mu.Unlock()
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.tokens) >= maxRemembered {
		clear(a.tokens)
	}
	a.tokens[key] = c
	return c, nil
}

// valid reviews the token again if the last review is too old.
func (c *caller) valid(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.of.now()
	if !c.reviewed.IsZero() && now.Sub(c.reviewed) < trusted {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTime)
	defer cancel()
	user, err := c.of.api.ReviewToken(ctx, c.token)
	if err != nil {
		c.reviewed = time.Time{}
		return fmt.Errorf("token: %w", err)
	}
	if !user.Is(c.user) {
		clear(c.namespaces)
	}
	c.user, c.reviewed = user, now
	return nil
}

// may reports whether the caller may see the flows of a namespace; "" is all of them.
func (c *caller) may(ctx context.Context, namespace string) (bool, error) {
	if err := c.valid(ctx); err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.of.now()
	if have, ok := c.namespaces[namespace]; ok && now.Sub(have.at) < trusted {
		return have.allowed, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTime)
	defer cancel()
	allowed, err := c.of.api.MayGetFlows(ctx, c.user, namespace)
	if err != nil {
		delete(c.namespaces, namespace)
		return false, fmt.Errorf("right to get flows.weft.dev in namespace %q: %w", namespace, err)
	}
	if len(c.namespaces) >= maxRemembered {
		clear(c.namespaces)
	}
	c.namespaces[namespace] = answer{allowed, now}
	return allowed, nil
}
