// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// patience is how long one request may take.
const patience = 5 * time.Second

// Bounded bounds one request.
func Bounded[T any](ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return do(ctx)
}

// ErrSilent is in every error of a request that was not answered.
var ErrSilent = errors.New("the cluster's store does not answer")

// Unreachable is the fault of a request that failed without an answer; answers stay as they are.
func Unreachable(what string, err error) error {
	for _, answer := range []error{ErrNotFound, ErrExists, ErrConflict, ErrSilent} {
		if errors.Is(err, answer) {
			return err
		}
	}
	return model.Faultf(model.CodeTryAgain, "", "%s: %w: %w", what, ErrSilent, err)
}

// IgnoreConflict is nil for the error of a request that came too late: the object was changed meanwhile, or is gone.
func IgnoreConflict(err error) error {
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
