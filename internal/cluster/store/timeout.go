// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// requestTimeout bounds one request.
const requestTimeout = 5 * time.Second

// WithTimeout bounds one request.
func WithTimeout[T any](ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return do(ctx)
}

// ErrNoAnswer is wrapped by every error of a request without an answer.
var ErrNoAnswer = errors.New("the datastore does not answer")

// Unreachable returns the error of a request without an answer; other errors are returned unchanged.
func Unreachable(what string, err error) error {
	for _, answer := range []error{ErrNotFound, ErrExists, ErrConflict, ErrNoAnswer} {
		if errors.Is(err, answer) {
			return err
		}
	}
	return model.Errorf(model.CodeTryAgain, "", "%s: %w: %w", what, ErrNoAnswer, err)
}

// IgnoreConflict returns nil if the object was changed meanwhile, or is gone.
func IgnoreConflict(err error) error {
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
