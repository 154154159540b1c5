// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"slices"
)

// Overlay returns objects with the kinds of another store in the place of its own. Those can only be read.
func Overlay(objects Objects, kinds []Kind, other []Object) Objects {
	return overlay{objects, kinds, other}
}

type overlay struct {
	Objects
	kinds []Kind
	other []Object
}

// Get returns one object.
func (o overlay) Get(ctx context.Context, kind Kind, key Key) (Object, error) {
	if !slices.Contains(o.kinds, kind) {
		return o.Objects.Get(ctx, kind, key)
	}
	for _, one := range o.other {
		if one.Key == key {
			return one, nil
		}
	}
	return Object{}, fmt.Errorf("%s: %w", key, ErrNotFound)
}

// List returns all objects of a kind.
func (o overlay) List(ctx context.Context, kind Kind) (out []Object, err error) {
	if !slices.Contains(o.kinds, kind) {
		return o.Objects.List(ctx, kind)
	}
	for _, one := range o.other {
		if one.Key.Of(kind) {
			out = append(out, one)
		}
	}
	return out, nil
}

// Each visits all objects of a kind.
func (o overlay) Each(ctx context.Context, kind Kind, visit func(Object)) error {
	if !slices.Contains(o.kinds, kind) {
		return Each(ctx, o.Objects, kind, visit)
	}
	for _, one := range o.other {
		if one.Key.Of(kind) {
			visit(one)
		}
	}
	return nil
}
